"""A large cluster: 2,000 nodes of a real size, and 16,000 pods."""

import json
import re
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from cluster.scripted_api import Answer, Asked, Script
from fleets.objects import NODES, NONE, OBJECTS, container, node, pod

COUNT = 2000
PODS_OF_A_NODE = 8
PAGE = 500
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


def pages(make: Callable[[int], dict[str, Any]], count: int) -> list[str]:
    """Return the pages of a list as text, made once."""
    return [
        json.dumps(
            {
                "metadata": {
                    "resourceVersion": "9",
                    "remainingItemCount": count - start - PAGE,
                    "continue": str(start // PAGE + 1) if start + PAGE < count else "",
                },
                "items": [make(number) for number in range(start, start + PAGE)],
            }
        )
        for start in range(0, count, PAGE)
    ]


@pytest.mark.slow
def test_a_large_cluster_is_listed_in_pages_with_little_memory(script: Script) -> None:
    lists = {NODES: pages(large, COUNT), "/api/v1/pods": pages(busy, COUNT * PODS_OF_A_NODE)}

    def answer(asked: Asked) -> Answer:
        if asked.path == OBJECTS:
            return NONE
        return Answer(text=lists[asked.path][int(asked.query.get("continue", "0"))])

    script.otherwise = answer
    words = ["fleet", "--problems", f"--api={script.url}"]
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *words], capture_output=True, text=True, check=True
    )
    sums = "example.com/gpu: 15999 of 16000 healthy on 2000 nodes, 16000 held"
    assert sums in done.stdout
    assert "node-1234  7        8      8     1 unhealthy" in done.stdout
    assert 1 + 4 + 32 == len(script.asked)
    assert {"500"} == {asked.query["limit"] for asked in script.asked}
    peak = re.search(r"VmHWM:\s+(\d+) kB", done.stderr)
    assert peak is not None
    assert int(peak[1]) / 1024 < MOST_MIB
