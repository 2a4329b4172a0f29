"""The health of GPUs: by what the kernel reports of each, without a library and without privilege.

A driver reports a hang only once, so it is remembered until the driver is bound to the GPU anew.
"""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias

from deviceplugin.kit import drm
from deviceplugin.kit.state import State
from deviceplugin.kit.sysfs import AbsentError, Sysfs, SysfsError, shown
from deviceplugin_intelgpu.gpus import SURVIVABILITY, Gpu

_VERSION: Final = 1
_MODE: Final = "Survivability mode type: "
_UNFINISHED: Final = "reset"
"""What stands for the ways to recover a GPU whose driver has begun a reset and not ended it."""
_FIRMWARE: Final = "its firmware reports"
_Memory: TypeAlias = tuple[drm.Hangs, dict[str, str]]


class Verdict(NamedTuple):
    """What is wrong with a GPU; empty strings if nothing is."""

    certain: str = ""
    doubtful: str = ""
    """What may be over at the next discovery."""
    worn: str = ""
    """Why it works and will not for long."""


class Memory:
    """What is known only from the past: hangs, and which GPU an id such as card0 belongs to.

    ``heard`` may be called in another thread. Without a ``path`` nothing is saved.
    """

    def __init__(self, sysfs: Sysfs, path: Path | None) -> None:
        self._sysfs = sysfs
        self._state = State(path, _VERSION)
        empty: _Memory = drm.Hangs(sysfs), {}
        self._hangs, self._owners = self._state.load(partial(_read, sysfs), empty)

    def heard(self, event: Mapping[str, str]) -> None:
        """Take note of an event of the kernel.

        i915 reports ERROR=1 when it begins to reset a whole GPU, and ERROR=0 when it has succeeded;
        before Linux 6.15 nothing else says that a GPU hangs.
        """
        if (error := event.get("ERROR")) and "WEDGED" not in event:
            event = {**event, "WEDGED": "none" if error == "0" else _UNFINISHED}
        self._hangs.heard(event)

    def owner(self, card: str, address: str) -> str:
        """Return the GPU that a name such as card0 belongs to: the first that had it."""
        return self._owners.setdefault(card, address)

    def save(self) -> None:
        """Save it for the next start of the plugin."""
        self._state.save({"hangs": self._hangs.remembered, "cards": self._owners})

    def verdict(self, gpu: Gpu) -> Verdict:
        """Return what is wrong with a GPU."""
        ways = self._hangs.check(gpu.folder).ways
        if ways == _UNFINISHED:
            return Verdict(doubtful="its driver has begun a reset and not ended it")
        if ways:
            return Verdict(f"wedged: its driver asks for {ways}")
        if gpu.missing:
            return Verdict(gpu.missing)
        return self._survivability(gpu) or self._firmware(gpu)

    def _survivability(self, gpu: Gpu) -> Verdict | None:
        try:
            text = self._sysfs.read(gpu.folder / SURVIVABILITY)
        except AbsentError:
            return None
        except SysfsError:  # only root may read it; that it is there says enough
            text = ""
        mode = text.partition("\n")[0].removeprefix(_MODE)
        return Verdict(f"in survivability mode{f' ({mode})' if mode else ''}")

    def _firmware(self, gpu: Gpu) -> Verdict:
        try:
            text = self._sysfs.read(gpu.folder / "gpu_health", "ok")
        except SysfsError as error:
            return Verdict(doubtful=str(error))
        known = {
            "ok": Verdict(),
            "warning": Verdict(worn=f"{_FIRMWARE} a warning"),
            "critical": Verdict(f"{_FIRMWARE} critical health"),
        }
        return known.get(text, Verdict(doubtful=f"gpu_health: {shown(text)} is unknown"))


def _read(sysfs: Sysfs, document: Mapping[str, Any]) -> _Memory:
    owners = {str(card): str(address) for card, address in document["cards"].items()}
    return drm.Hangs(sysfs, document["hangs"]), owners
