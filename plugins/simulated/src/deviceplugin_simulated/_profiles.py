"""Machines that one may want to look like, as they stand in a file."""

from collections.abc import Mapping
from typing import Any, Final

PROFILES: Final[Mapping[str, Mapping[str, Any]]] = {
    "8-gpus": {
        "example.com/gpu": {
            "count": 8,
            "numa": "0-1",
            "nodes": ["/dev/simgpu{index}", "/dev/simgpuctl"],
            "envs": {"GPU_{index}": "{id}"},
            "attributes": {"model": "SIM-80G", "memory": "80Gi"},
        },
    },
    "gpus-and-nics": {
        "example.com/gpu": {
            "count": 8,
            "numa": "0-1",
            "nodes": ["/dev/simgpu{index}"],
            "attributes": {"model": "SIM-80G"},
        },
        "example.com/nic": {
            "count": 8,
            "numa": "0-1",
            "nodes": ["/dev/infiniband/uverbs{index}", "/dev/infiniband/rdma_cm"],
            "attributes": {"rate": "400Gb/s"},
        },
    },
    "36-numa-nodes": {
        "example.com/gpu": {
            "count": 72,
            "numa": "0-35",
            "cdi-names": ["example.com/gpu={index}"],
            "attributes": {"model": "SIM-RACK"},
        },
    },
    "1000-dongles": {
        "example.com/dongle": {
            "count": 1000,
            "nodes": ["/dev/ttySIM{index}"],
            "attributes": {"serial": "S{index}"},
        },
    },
    "edge": {
        "example.com/camera": {"count": 4, "nodes": ["/dev/simvideo{index}"]},
        "example.com/serial": {"count": 16, "nodes": ["/dev/ttySIM{index}"]},
        "example.com/tpu": {
            "count": 1,
            "nodes": ["/dev/simtpu0"],
            "mounts": [{"host": "/etc/hostname", "container": "/run/tpu/host", "read-only": True}],
        },
    },
}
