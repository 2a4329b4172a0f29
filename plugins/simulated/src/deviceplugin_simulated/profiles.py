"""Profiles of typical machines, in the form of a configuration file.

All device nodes are /dev/null, because a container whose node is missing on the host does not
start.
"""

from collections.abc import Mapping
from typing import Any, Final


def _node(name: str) -> Mapping[str, str]:
    return {"host": "/dev/null", "container": f"/dev/{name}"}


PROFILES: Final[Mapping[str, Mapping[str, Any]]] = {
    "8-gpus": {
        "example.com/gpu": {
            "count": 8,
            "numa": "0-1",
            "nodes": [_node("simgpu{index}"), _node("simgpuctl")],
            "envs": {"GPU_{index}": "{id}"},
            "attributes": {"model": "SIM-80G", "memory": "80Gi"},
        },
    },
    "gpus-and-nics": {
        "example.com/gpu": {
            "count": 8,
            "numa": "0-1",
            "nodes": [_node("simgpu{index}")],
            "attributes": {"model": "SIM-80G"},
        },
        "example.com/nic": {
            "count": 8,
            "numa": "0-1",
            "nodes": [_node("infiniband/uverbs{index}"), _node("infiniband/rdma_cm")],
            "attributes": {"rate": "400Gb/s"},
        },
    },
    "36-numa-nodes": {
        "example.com/gpu": {
            "count": 72,
            "numa": "0-35",
            "envs": {"GPU_{index}": "{id}"},
            "attributes": {"model": "SIM-RACK"},
        },
    },
    "1000-dongles": {
        "example.com/dongle": {
            "count": 1000,
            "nodes": [_node("ttySIM{index}")],
            "attributes": {"serial": "S{index}"},
        },
    },
    "edge": {
        "example.com/camera": {"count": 4, "nodes": [_node("simvideo{index}")]},
        "example.com/serial": {"count": 16, "nodes": [_node("ttySIM{index}")]},
        "example.com/tpu": {
            "count": 1,
            "nodes": [_node("simtpu0")],
            "mounts": [{"host": "/etc/hostname", "container": "/run/tpu/host", "read-only": True}],
        },
    },
}
