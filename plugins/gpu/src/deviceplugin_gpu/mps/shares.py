"""What the plugin knows of MPS: which daemons it wants, and which units they cannot serve.

A daemon of ``gpu-mps-daemon`` serves one GPU or MIG device, unless a container may have shares of
several GPUs. NVIDIA's serves all GPUs of a resource, as one of those does. Without
``gpu-mps-daemon`` on the node, theirs is assumed.
"""

import errno
import socket
from collections import defaultdict
from collections.abc import Collection, Container, Sequence
from pathlib import Path
from typing import Final

import deviceplugin as dp
from deviceplugin_gpu.advertised.units import Unit
from deviceplugin_gpu.configuration.settings import GpuSettings
from deviceplugin_gpu.mps.daemons import RUNNING, WANTED, Daemon, Daemons, running, write
from deviceplugin_gpu.snapshot import PROHIBITED

_VOLTA_CLIENTS: Final = 48
_OLDER_CLIENTS: Final = 16
"""Clients that MPS serves on one GPU."""
_UNKNOWN: Final = (0, 0)
_KEPLER: Final = (3, 5)
_VOLTA: Final = (7, 0)
_LIMITS: Final = (11, 5)
"""The CUDA whose drivers are the first to limit memory."""
_FOUR_SLICES: Final = ("A30", "RTX PRO")
_SLICES: Final = 7
_MIB: Final = 1 << 20


def memory(unit: Unit) -> int:
    """Return the bytes that a share of the unit's device may use; 0 if that is unknown."""
    return (unit.mig or unit.gpu).memory // unit.replicas


def _most_clients(unit: Unit) -> int:
    """Return how many clients MPS serves on the device: on MIG in proportion to its size."""
    if unit.gpu.compute < _VOLTA:
        return _OLDER_CLIENTS
    if unit.mig is None or not unit.mig.compute_slices:
        return _VOLTA_CLIENTS
    slices = 4 if any(model in unit.gpu.name for model in _FOUR_SLICES) else _SLICES
    return _VOLTA_CLIENTS * min(unit.mig.compute_slices, slices) // slices


def _refusal(unit: Unit, cuda: tuple[int, int]) -> str:
    """Return why MPS cannot serve a unit, whatever the daemon says; empty if it can."""
    gpu, most = unit.gpu, _most_clients(unit)
    for is_so, why in (
        (not gpu.uuid.startswith("GPU-"), "no MPS on a Jetson and on WSL: share by timeSlicing"),
        (gpu.is_virtual, "it is a vGPU: share by timeSlicing"),
        (
            gpu.compute_mode == PROHIBITED,
            f"its mode is Prohibited: nvidia-smi -i {gpu.uuid} -c DEFAULT",
        ),
        (_UNKNOWN < gpu.compute < _KEPLER, "its compute capability is below 3.5"),
        (gpu.mig_enabled and not unit.mig, "MIG is enabled: set mig-strategy to mixed or single"),
        (_UNKNOWN < cuda < _LIMITS, "the driver limits no memory: install one for CUDA 11.5"),
        ((unit.replica or 0) >= most, f"it can have {most} replicas with MPS at most"),
    ):
        if is_so:
            return f"MPS cannot serve {unit.uuid}: {why}"
    return ""


def _silence(root: Path, name: str) -> str:
    """Return why nobody listens on the socket of a daemon; empty if somebody does."""
    path = root / name / "pipe" / "control"
    # NVIDIA's has packets. A socket of another type says so, and only if it is listened on.
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as client:
        client.settimeout(0)  # a local socket answers at once, or its queue is full
        try:
            client.connect(str(path))
        except OSError as error:
            if error.errno != errno.EPROTOTYPE:
                reason = error.strerror or str(error)
                return f"no MPS control daemon answers on {path}: {reason}"
    return ""


class Shares:
    """The shares by MPS. ``root`` is where mps-root of the host is mounted. For one thread."""

    def __init__(self, root: Path, settings: GpuSettings) -> None:
        self._root, self._settings = root, settings
        self._running: Daemons | None = None
        """The daemons of gpu-mps-daemon; None if it does not run."""
        self._wanted: Daemons = {}

    @property
    def watched(self) -> list[Path]:
        """What changes when a daemon gets ready, and when it dies."""
        return [self._root / RUNNING] if self._settings.sharing.mps else []

    def check(
        self, units: Sequence[Unit], cuda: tuple[int, int], held: Container[str] = ()
    ) -> tuple[dict[str, str], list[str]]:
        """Want daemons for ``units``; return why some cannot be used now, by id, and warnings.

        None is wanted for the GPUs and MIG devices that are ``held``, by UUID.
        """
        is_on = self._settings.sharing.mps
        shared = [unit for unit in units if is_on and unit.replica is not None]
        problems = {unit.id: why for unit in shared if (why := _refusal(unit, cuda))}
        usable = [unit for unit in shared if unit.id not in problems]
        try:
            self._running = running(self._root) if shared else {}
        except dp.DiscoveryError as error:
            return problems | {unit.id: str(error) for unit in usable}, []
        warnings = self._want([unit for unit in usable if unit.uuid not in held])
        # Ours says itself whether it serves, and would log each attempt.
        names = set(map(self.name, usable)) if self._running is None else set[str]()
        more = ", and gpu-mps-daemon does not run"
        silences = {name: (why := _silence(self._root, name)) and why + more for name in names}
        found = {unit.id: silences.get(self.name(unit)) or self._problem(unit) for unit in usable}
        theirs = {unit.resource for unit in usable} - (self._running or {}).keys() - silences.keys()
        warnings += [
            f"another MPS control daemon is in {self._root / one}: delete NVIDIA's DaemonSet of it"
            for one in theirs
            if not _silence(self._root, one)
        ]
        return problems | {one: why for one, why in found.items() if why}, warnings

    def name(self, unit: Unit) -> str:
        """Return the name of the daemon that serves a unit: its directory below mps-root."""
        is_ours = self._running is not None
        return self._own_name(unit) if is_ours or unit.mig else unit.resource

    def user(self, resource: str, uuid: str) -> str:
        """Return the daemon that may have a GPU or MIG device open; empty if none has."""
        found = running(self._root)
        if found is None:
            return "" if _silence(self._root, resource) else resource
        return next((name for name, one in found.items() if uuid in one.devices), "")

    def _own_name(self, unit: Unit) -> str:
        # A process sees one MIG device at most, and the daemon of several cannot serve them.
        if unit.mig or self._settings.sharing.one_at_most:
            return f"{unit.resource}/{unit.uuid.replace('/', '_')}"
        return unit.resource

    def _want(self, units: Sequence[Unit]) -> list[str]:
        path, found = self._root / WANTED, defaultdict[str, dict[str, Unit]](dict)
        for unit in units:
            found[self._own_name(unit)][unit.uuid] = unit
        self._wanted = {name: _daemon(own.values()) for name, own in found.items()}
        if not units and not path.exists():
            return []
        try:
            write(path, self._wanted)
        except OSError as error:
            if self._running is not None:  # or it is NVIDIA's, which reads no such file
                return [f"gpu-mps-daemon does not learn what is shared: {path}: {error.strerror}"]
        return []

    def _problem(self, unit: Unit) -> str:
        """Return why our own daemon does not serve the unit; empty if it does, or is not ours."""
        if self._running is None:
            return ""
        name = self.name(unit)
        if not (daemon := self._running.get(name)):
            return f"gpu-mps-daemon has not started the MPS control daemon {name}"
        if daemon.problem:
            return f"the MPS control daemon {name}: {daemon.problem}"
        wanted, size = self._wanted.get(name, daemon), daemon.devices.get(unit.uuid)
        # That of a held GPU is not wanted.
        if (daemon.threads, size) == (wanted.threads, wanted.devices.get(unit.uuid, size)):
            return ""
        return (
            f"the MPS control daemon {name} has other limits or devices until the last of its "
            "clients has ended"
        )


def _daemon(units: Collection[Unit]) -> Daemon:
    """Return the daemon for units of different devices. Limits came with Volta."""
    limited = [unit for unit in units if unit.gpu.compute >= _VOLTA]
    sizes = dict.fromkeys((unit.uuid for unit in units), 0)
    sizes |= {unit.uuid: memory(unit) // _MIB for unit in limited}
    return Daemon(sizes, min((100 // unit.replicas for unit in limited), default=0))
