"""The generic plugin in every home."""

from pathlib import Path

from homes.case import Case, Example, Opened
from homes.home import Given, Plugin

FULL = """
devices:
  - name: e2e-full
    groups:
      - {count: 2, select: {subsystem: mem, name: full}, mountPath: /dev/e2e-full}
    env: {E2E_FULL: "{path}"}
    annotations: {squat.ai/e2e: "{path}"}
    mounts: [{path: /proc/version, mountPath: /e2e/version, readOnly: true}]
"""
FUSE = """
devices:
  - name: e2e-fuse
    groups:
      - {select: {subsystem: misc, name: fuse}, mountPath: /dev/e2e-fuse, permissions: r}
"""
SHOWN = (Path(__file__).parents[3] / "demo/examples/generic/config.yaml").read_text()


def look(given: Given) -> None:
    """A container has the node, the variable, the mount and the annotation of its device."""
    assert "/dev/full" == given.envs["E2E_FULL"]
    assert "/dev/e2e-full" in given.nodes
    assert given.mounts["/e2e/version"]
    assert given.annotations in (None, {"squat.ai/e2e": "/dev/full"})


CASE = Case(
    Plugin("generic", "devic.es/e2e-full", 2, config=FULL),
    look,
    Example(Plugin("generic", "devic.es/fuse", None, config=SHOWN), r"^c.* 10, +229 .* /dev/fuse$"),
    Opened(Plugin("generic", "devic.es/e2e-fuse", None, config=FUSE), "e2e-fuse", "r"),
)
