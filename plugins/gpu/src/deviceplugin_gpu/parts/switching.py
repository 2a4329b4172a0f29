"""What we did to GPUs: MIG was switched on for the first part, and parts were made."""

import logging
from pathlib import Path
from threading import Lock
from typing import Final

import deviceplugin as dp
from deviceplugin.kit.state import State
from deviceplugin_gpu.nvml import api, instances
from deviceplugin_gpu.nvml.api import Handle, NvmlError
from deviceplugin_gpu.nvml.processes import memory_by_pid

log = logging.getLogger(__name__)

_FILE: Final = "mig.json"


class Ours:
    """UUIDs of GPUs whose MIG mode we switched on, and ids of parts that we began to make.

    They are remembered beside ``state_file``, which no reboot leaves: another process of this boot
    switches back and removes what we did, and nothing that somebody else did. Thread-safe; several
    processes may share the file.
    """

    def __init__(self, state_file: Path | None) -> None:
        self._path = state_file and state_file.with_name(_FILE)
        self._state = State(self._path, 1)
        self._lock = Lock()
        self.names = frozenset[str]()
        self.refresh()

    def refresh(self) -> None:
        """Learn what another process has changed."""
        with self._lock:
            self._load()

    def has(self, name: str) -> bool:
        """Return whether we did it, in this process or another."""
        self.refresh()
        return name in self.names

    def add(self, name: str) -> None:
        """Remember it, before it is done; AllocationError if that is impossible."""
        try:
            is_saved = self._change(name, there=True)
        except dp.DevicePluginError as error:
            raise dp.AllocationError(str(error)) from error
        if not is_saved:
            raise dp.AllocationError(f"{self._path} cannot be written: what is made would be lost")

    def remove(self, name: str) -> None:
        """Forget what has been undone; DevicePluginError if another process keeps the file."""
        self._change(name, there=False)

    def _change(self, name: str, *, there: bool) -> bool:
        with self._lock, self._state.alone():
            self._load()
            if (name in self.names) == there:
                return True
            self.names = self.names | {name} if there else self.names - {name}
            return self._state.save({"ours": sorted(self.names)}) or self._path is None

    def _load(self) -> None:
        self.names = self._state.load(lambda saved: frozenset(saved["ours"]), self.names)


class Switch:
    """The MIG modes. For one thread at a time for each GPU."""

    def __init__(self, ours: Ours) -> None:
        self._ours = ours
        self.stuck: dict[str, str] = {}
        """Why MIG could not be switched off, by the GPU's UUID."""

    def on(self, uuid: str, gpu: Handle) -> None:
        """Switch MIG on, or raise NvmlError or AllocationError with nothing changed or pending."""
        self._ours.add(uuid)
        try:
            instances.switch(gpu, on=True)
        except NvmlError as error:
            self._ours.remove(uuid)
            if error.code == api.IN_USE and (pids := sorted(memory_by_pid(gpu))):
                said = ", ".join(map(str, pids))
                raise dp.AllocationError(f"{error}: by the processes {said}") from error
            raise
        self._switched(uuid, "on")

    def off(self, uuid: str, gpu: Handle) -> None:
        """Switch MIG off if we switched it on. If that fails, it is tried at each discovery."""
        if not self._ours.has(uuid):
            return
        try:
            if instances.mode(gpu)[0]:
                instances.switch(gpu, on=False)
        except NvmlError as error:
            if uuid not in self.stuck:
                log.warning("MIG mode not switched off", extra={"gpu": uuid, "error": str(error)})
            self.stuck[uuid] = f"MIG cannot be switched off: {error}"
        else:
            self._ours.remove(uuid)
            self._switched(uuid, "off")

    def _switched(self, uuid: str, mig: str) -> None:
        self.stuck.pop(uuid, None)
        log.info("MIG mode switched", extra={"gpu": uuid, "mig": mig})
