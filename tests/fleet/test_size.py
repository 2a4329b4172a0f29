"""A large cluster: 2,000 nodes of a real size, and 16,000 pods."""

import json
import re
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from cluster.scripted_api import Answer, Asked, Script
from deviceplugin.tools._node_devices import API
from fleets.objects import NODES, NONE, container, node, pod

COUNT = 2000
PODS_OF_A_NODE = 8
PAGE = 500
SLICES = 100
MOST_MIB = 96
"""Of the process. An empty cluster takes 30."""
PROGRAM = """
import sys
from deviceplugin.__main__ import main
status = main(sys.argv[1:])
print(open('/proc/self/status').read(), file=sys.stderr)
sys.exit(status)
"""


def large(number: int) -> dict[str, Any]:
    """Return a node of 8 kB: most of a real one are the images that it has."""
    found = node(f"node-{number}", gpu=(7 if number == 1234 else 8, 8))
    images = [
        {"names": [f"registry.example.com/some/image-{each}@sha256:{'0' * 64}"], "sizeBytes": each}
        for each in range(50)
    ]
    return {**found, "status": {**found["status"], "images": images}}


def busy(number: int) -> dict[str, Any]:
    """Return a pod of 2 kB that has a device."""
    found = pod(f"node-{number // PODS_OF_A_NODE}", container(gpu=1))
    return {**found, "metadata": {"name": f"p-{number}", "annotations": {"note": "x" * 1500}}}


def offered(number: int) -> dict[str, Any]:
    """Return the slice of a node with eight devices, of some 6 kB."""
    text = {f"a{each}": {"string": "x" * 64} for each in range(5)}
    devices = [{"name": f"d{each}", "attributes": text} for each in range(8)]
    pool = {"name": f"node-{number}", "generation": 1, "resourceSliceCount": 1}
    more = {"driver": "nic.example.com", "nodeName": f"node-{number}", "pool": pool}
    return {"metadata": {"name": f"s-{number}"}, "spec": {**more, "devices": devices}}


def pages(make: Callable[[int], dict[str, Any]], count: int, size: int = PAGE) -> list[str]:
    """Return the pages of a list as text, made once."""
    return [
        json.dumps(
            {
                "metadata": {
                    "resourceVersion": "9",
                    "remainingItemCount": count - start - size,
                    "continue": str(start // size + 1) if start + size < count else "",
                },
                "items": [make(number) for number in range(start, start + size)],
            }
        )
        for start in range(0, count, size)
    ]


@pytest.mark.slow
def test_a_large_cluster_is_listed_in_pages_with_little_memory(script: Script) -> None:
    lists = {NODES: pages(large, COUNT), "/api/v1/pods": pages(busy, COUNT * PODS_OF_A_NODE)}
    lists |= {f"{API}/resourceslices": pages(offered, COUNT, SLICES)}

    def answer(asked: Asked) -> Answer:
        if asked.path not in lists:
            return NONE
        return Answer(text=lists[asked.path][int(asked.query.get("continue", "0"))])

    script.otherwise = answer
    words = ["fleet", "--problems", f"--api={script.url}"]
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *words], capture_output=True, text=True, check=True
    )
    sums = "example.com/gpu: 15999 of 16000 healthy on 2000 nodes, 16000 held"
    assert sums in done.stdout
    assert "nic.example.com: 16000 of 16000 healthy on 2000 nodes, 0 held" in done.stdout
    assert "node-1234  7        8      8     1 unhealthy" in done.stdout
    assert 1 + 4 + 32 + 20 + 2 == len(script.asked)
    assert {"500", "100"} == {asked.query["limit"] for asked in script.asked}
    peak = re.search(r"VmHWM:\s+(\d+) kB", done.stderr)
    assert peak is not None
    assert int(peak[1]) / 1024 < MOST_MIB
