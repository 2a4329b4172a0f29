"""Switching MIG on for the first part of a GPU, and off after the last one; what is remembered."""

import logging
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import deviceplugin as dp
from deviceplugin.kit.state import State
from deviceplugin_gpu.nvml import api, instances
from deviceplugin_gpu.nvml.api import Handle, NvmlError
from deviceplugin_gpu.nvml.processes import memory_by_pid

log = logging.getLogger(__name__)

_FILE: Final = "mig.json"
_NOTHING: Final[tuple[frozenset[str], frozenset[str]]] = (frozenset(), frozenset())


class Switch:
    """The MIG modes that we have changed, and the parts that we made. For one thread at a time.

    They are remembered beside ``state_file``, which no reboot leaves, so that the next process
    switches back and removes what we did, and nothing that somebody else did.
    """

    def __init__(self, state_file: Path | None) -> None:
        self._state = State(state_file and state_file.with_name(_FILE), 1)
        known = self._state.load(
            lambda saved: (frozenset(saved["switched"]), frozenset(saved["parts"])), _NOTHING
        )
        self.switched, self.begun = known
        """UUIDs of GPUs whose MIG mode we switched on, which cannot be used as a whole, and ids."""
        self.stuck: dict[str, str] = {}
        """Why MIG could not be switched off, by UUID."""

    def begin(self, part: str) -> None:
        """Remember that a part is being made: what is in its place from now on is ours."""
        if part not in self.begun:
            self._save(self.switched, self.begun | {part})

    def end(self, parts: Iterable[str]) -> None:
        """Forget parts that are not there any more."""
        if gone := self.begun.intersection(parts):
            self._save(self.switched, self.begun - gone)

    def on(self, uuid: str, gpu: Handle) -> None:
        """Switch MIG on, or raise NvmlError or AllocationError with nothing changed or pending."""
        self._remember(uuid, switched=True)
        try:
            instances.switch(gpu, on=True)
        except NvmlError as error:
            self._remember(uuid, switched=False)
            if error.code == api.IN_USE and (pids := sorted(memory_by_pid(gpu))):
                said = ", ".join(map(str, pids))
                raise dp.AllocationError(f"{error}: by the processes {said}") from error
            raise
        log.info("MIG mode switched", extra={"gpu": uuid, "mig": "on"})

    def off(self, uuid: str, gpu: Handle) -> None:
        """Switch MIG off if we switched it on. If that fails, it is tried at each discovery."""
        if uuid not in self.switched:
            return
        try:
            if instances.mode(gpu)[0]:
                instances.switch(gpu, on=False)
                log.info("MIG mode switched", extra={"gpu": uuid, "mig": "off"})
        except NvmlError as error:
            if uuid not in self.stuck:
                fields = {"gpu": uuid, "error": str(error)}
                log.warning("MIG mode not switched off", extra=fields)
            self.stuck[uuid] = f"MIG cannot be switched off: {error}"
            return
        self._remember(uuid, switched=False)

    def _remember(self, uuid: str, *, switched: bool) -> None:
        self.stuck.pop(uuid, None)
        self._save(self.switched | {uuid} if switched else self.switched - {uuid}, self.begun)

    def _save(self, switched: frozenset[str], begun: frozenset[str]) -> None:
        self.switched, self.begun = switched, begun
        self._state.save({"switched": sorted(switched), "parts": sorted(begun)})
