"""Cards that can be programmed, and containers that have them."""

import json
from collections.abc import Sequence
from pathlib import Path

from typing_extensions import override

from deviceplugin_fpga.drivers import Driver
from deviceplugin_fpga.hook.programming import Kernel
from fpga.trees import FpgaTree, number_of


class FakeCards(Kernel):
    """In the kernel's place: an image is the id that a port has when it is programmed with it."""

    def __init__(self, tree: FpgaTree) -> None:
        super().__init__(tree.dev)
        self._tree = tree
        self.programmed: list[tuple[str, int, str]] = []
        self.error: OSError | None = None
        self.is_deaf = False
        """Whether programming has no effect."""

    @override
    def program(self, driver: Driver, fme: str, port: int, image: memoryview) -> None:
        assert driver.folder == self._tree.words.folder
        afu = bytes(image).decode()
        self.programmed.append((fme, port, afu))
        if self.error:
            raise self.error
        (folder,) = self._tree.sys.glob(f"devices/**/{fme}")
        for path in folder.parent.glob(f"{self._tree.words.port}*"):
            if (path / "id").read_text() == f"{port}\n" and not self.is_deaf:
                (path / "afu_id").write_text(f"{afu}\n")


def bundle(folder: Path, ports: Sequence[Path], **environment: str) -> bytes:
    """Make the bundle of a container that has ``ports``; return its state."""
    devices = [{"path": "/dev/null", "type": "c", "major": 1, "minor": 3}]
    for port in ports:
        major, minor = number_of(port)
        path = f"/dev/{port.name}"
        devices.append({"path": path, "type": "c", "major": major, "minor": minor})
    config = {
        "ociVersion": "1.2.0",
        "process": {"env": ["PATH=/bin", *(f"{k}={v}" for k, v in environment.items())]},
        "linux": {"devices": devices},
    }
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    state = {"ociVersion": "1.2.0", "id": "c1", "status": "creating", "bundle": str(folder)}
    return json.dumps(state).encode()


def write_hook(path: Path, installed: Path, tree: FpgaTree) -> None:
    """Write what calls the ``installed`` hook for the cards of a tree, without any bitstream.

    A container runtime gives a hook no flags but those of the specification.
    """
    flags = f"--sysfs={tree.sys} --dev={tree.dev} --bitstreams={path.parent}/none"
    path.write_text(f'#!/bin/sh\nexec {installed} {flags} --lock={path.parent}/lock "$@"\n')
    path.chmod(0o755)
