"""Switching MIG on for the first part of a GPU, and off after the last one."""

import logging
from pathlib import Path
from typing import Final

import deviceplugin as dp
from deviceplugin.kit.state import State
from deviceplugin_gpu.nvml import api, instances
from deviceplugin_gpu.nvml.api import Handle, NvmlError
from deviceplugin_gpu.nvml.processes import memory_by_pid

log = logging.getLogger(__name__)

_FILE: Final = "mig.json"


class Switch:
    """The MIG modes that we have changed. For one thread at a time.

    They are remembered beside ``state_file``, so that the next process switches them back, and
    never one that somebody else has switched on.
    """

    def __init__(self, state_file: Path | None) -> None:
        self._state = State(state_file and state_file.with_name(_FILE), 1)
        self.switched: frozenset[str] = self._state.load(
            lambda saved: frozenset(saved["switched"]), frozenset()
        )
        """UUIDs of GPUs whose MIG mode we switched on: they cannot be used as a whole."""
        self.stuck: dict[str, str] = {}
        """Why MIG could not be switched off, by UUID."""

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
        self.switched = self.switched | {uuid} if switched else self.switched - {uuid}
        self.stuck.pop(uuid, None)
        self._state.save({"switched": sorted(self.switched)})
