"""NVML with types and one class of errors. This is the only module that uses pynvml."""

import ctypes
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, NamedTuple

import pynvml

import deviceplugin as dp
from deviceplugin_gpu.nvml.library import SONAME, Library, Versions, names_of

Handle = Any
"""NVML's pointer to a GPU, a MIG device or a set of events."""

UNINITIALIZED: Final = 1
INVALID_ARGUMENT: Final = 2
NOT_SUPPORTED: Final = 3
NO_PERMISSION: Final = 4
NOT_FOUND: Final = 6
INSUFFICIENT_POWER: Final = 8
DRIVER_NOT_LOADED: Final = 9
TIMEOUT: Final = 10
LIBRARY_NOT_FOUND: Final = 12
FUNCTION_NOT_FOUND: Final = 13
GPU_IS_LOST: Final = 15
RESET_REQUIRED: Final = 16
VERSION_MISMATCH: Final = 18
IN_USE: Final = 19
UNKNOWN: Final = 999
MISSING: Final = frozenset({INVALID_ARGUMENT, NOT_SUPPORTED, NOT_FOUND, FUNCTION_NOT_FOUND})
"""Errors that mean only that there is no value."""
REFUSED: Final = MISSING | {NO_PERMISSION}
"""Errors that are final: this driver will not answer, however often it is asked."""
UNUSABLE: Final = frozenset(
    {UNINITIALIZED, INSUFFICIENT_POWER, DRIVER_NOT_LOADED, GPU_IS_LOST, RESET_REQUIRED}
)
"""Errors that mean that a GPU cannot be used, whatever was asked."""

# NVML's numbers. Each release of pynvml has only those of its time.
MAX_LINKS: Final = 36
_NO_INSTANCE: Final = 0xFFFFFFFF
PROFILES: Final = 18
"""Profiles of GPU instances, numbered from 0. More would be asked for in vain."""
REMOTE_SWITCH: Final = 2
VGPU: Final = 2
"""The virtualization mode of a GPU of a virtual machine that has a part of one."""
HOST_VGPU: Final = 3
HOST_VSGA: Final = 4
"""The modes of a GPU whose host gives parts of it to virtual machines."""
RECOVERY_ACTION: Final = 230
NO_RECOVERY_NEEDED: Final = frozenset({0, 3})
"""Advice of the driver that leaves a GPU usable: nothing, or to drain peer to peer."""
VALID_EXPIRY: Final = 2
EVENT_XID: Final = 0x8
EVENT_SINGLE_BIT: Final = 0x1
EVENT_DOUBLE_BIT: Final = 0x2
EVENT_MIG: Final = 0x100
EVENTS: Final = EVENT_XID | EVENT_SINGLE_BIT | EVENT_DOUBLE_BIT | EVENT_MIG

_PATIENCE: Final = 5.0
"""Seconds that a shutdown waits for calls under way before it fails."""


class NvmlError(dp.DiscoveryError):
    """A call to NVML failed, with NVML's error ``code``."""

    def __init__(self, function: str, code: int, text: str) -> None:
        super().__init__(f"{function}: {text} (NVML error {code})")
        self.code = code


class LibraryMissingError(NvmlError):
    """There is no NVML library: the driver is not installed, or not visible here."""

    def __init__(self, library: Library) -> None:
        super().__init__("load", LIBRARY_NOT_FOUND, "no library")
        self.args = (f"the NVML library, {SONAME}, is in none of {len(library.attempts)} places",)


def call(function: str, *arguments: object) -> Any:
    """Return the result of NVML's ``function``, under whichever name library and pynvml have it."""
    known = next((name for name in names_of(function) if hasattr(pynvml, name)), None)
    if known is None:
        raise NvmlError(function, FUNCTION_NOT_FOUND, "not known to this nvidia-ml-py")
    try:
        return getattr(pynvml, known)(*arguments)
    except pynvml.NVMLError as error:
        raise NvmlError(function, int(error.value), str(error)) from error
    except UnicodeDecodeError as error:
        raise NvmlError(function, UNKNOWN, f"unreadable string: {error}") from error


def failure(function: str, code: int) -> NvmlError:
    """Return the error of a ``function`` that returns one beside its result."""
    return NvmlError(function, code, str(pynvml.NVMLError(code)))


def ask(default: Any, function: str, *arguments: object) -> Any:
    """Return the result of NVML's ``function``, or ``default`` if there is no value."""
    try:
        return call(function, *arguments)
    except NvmlError as error:
        if error.code in MISSING:
            return default
        raise


class Place(NamedTuple):
    """Where NVML has a GPU. Only ``handle`` makes it open the GPU's device node."""

    number: int
    """Its index, or its place among all GPUs by their address, which is the same."""
    address: str = ""
    """Its PCI address, if it must be asked for by that."""

    def handle(self) -> Handle:
        """Return the handle, from now on with the node open."""
        if self.address:
            return call("nvmlDeviceGetHandleByPciBusId", self.address)
        return call("nvmlDeviceGetHandleByIndex", self.number)


class Session:
    """NVML, initialized from ``open`` to ``close``. Thread-safe.

    All calls are made inside ``use``, so that none is under way while NVML is shut down.
    ``generation`` counts initializations. Handles and event sets of an earlier one are invalid.
    """

    def __init__(self, library: Library, wait_limit: float = 1.0) -> None:
        self.library = library
        self.wait_limit = wait_limit
        """Seconds that one wait for events takes at most. A shutdown waits as long."""
        self.generation = 0
        self.held: frozenset[str] = frozenset()
        """PCI addresses of GPUs of which no handle must be asked for. NVML opens the nodes of a GPU
        with its first handle, and has no function that closes those of one GPU."""
        self.addresses: Callable[[], Sequence[str]] = tuple
        """Returns the PCI addresses of all GPUs of the driver, in order."""
        self._changed = threading.Condition()
        self._opening = threading.Lock()
        self._users = 0
        self._open = False
        self._closing = False

    @property
    def is_open(self) -> bool:
        """Whether NVML is initialized."""
        return self._open

    def gpu(self, uuid: str, address: str) -> Handle:
        """Return the handle of a GPU, whose PCI address may be unknown; NvmlError if it is held."""
        if not self.held:
            return call("nvmlDeviceGetHandleByUUID", uuid)
        if not address or address in self.held:
            raise NvmlError("nvmlDeviceGetHandleByPciBusId", NOT_FOUND, "held")
        # By UUID, NVML would open others as well in search of it.
        return Place(0, address).handle()

    def places(self) -> Sequence[Place]:
        """Return where the GPUs are that are not held. Use it inside ``use``."""
        known = self.addresses() if self.held else ()
        if not known:  # without the PCI bus, others must not be lost for one that is held
            return [Place(index) for index in range(call("nvmlDeviceGetCount"))]
        return [Place(index, one) for index, one in enumerate(known) if one not in self.held]

    def wait_until_open(self, seconds: float) -> bool:
        """Wait at most ``seconds`` for NVML to be initialized, and return whether it is."""
        with self._changed:
            return self._changed.wait_for(lambda: self._open, seconds)

    def open(self) -> None:
        """Initialize NVML unless it is."""
        with self._opening:
            if not self._open:
                self._initialize()

    def reopen(self) -> None:
        """Shut NVML down and initialize it again, so that it sees changes. Others wait meanwhile.

        If calls under way do not return, it stays open.
        """
        with self._opening, self._alone():
            self._shut_down()
            self._initialize()

    def close(self) -> None:
        """Shut NVML down, unless calls under way do not return."""
        with self._opening, self._alone():
            self._shut_down()

    def _initialize(self) -> None:
        found = self.library.load()
        if found is not None:
            # pynvml would open the first library of this name again after an upgrade.
            pynvml.nvmlLib = Versions(found)
            pynvml._nvmlGetFunctionPointer_cache.clear()  # noqa: SLF001
        elif not self.library.path:
            raise LibraryMissingError(self.library)
        call("nvmlInit")
        with self._changed:
            self.generation += 1
            self._open = True
            self._changed.notify_all()

    def _shut_down(self) -> None:
        if self._open:
            self._open = False
            call("nvmlShutdown")

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Keep all others from using NVML meanwhile."""
        with self._changed:
            self._closing = True
            done = self._changed.wait_for(lambda: not self._users, _PATIENCE)
        try:
            if not done:
                raise NvmlError("nvmlShutdown", TIMEOUT, "another call does not return")
            yield
        finally:
            with self._changed:
                self._closing = False
                self._changed.notify_all()

    @contextmanager
    def use(self) -> Iterator[None]:
        """Keep NVML initialized meanwhile, or raise NvmlError if it is not."""
        with self._changed:
            self._changed.wait_for(lambda: not self._closing, _PATIENCE)
            if self._closing or not self._open:
                raise NvmlError("nvmlInit", UNINITIALIZED, "not initialized")
            self._users += 1
        try:
            yield
        finally:
            with self._changed:
                self._users -= 1
                self._changed.notify_all()


class EventSet:
    """Events of the registered GPUs, until ``close``."""

    def __init__(self) -> None:
        self._set = call("nvmlEventSetCreate")
        self._names: dict[int, str] = {}

    def register(self, gpu: Handle, uuid: str, kinds: int) -> None:
        """Register ``gpu`` for these ``kinds`` of events."""
        call("nvmlDeviceRegisterEvents", gpu, kinds, self._set)
        self._names[_address(gpu)] = uuid

    def wait(self, seconds: float) -> "tuple[str, int, int, int | None] | None":
        """Return GPU (empty if unknown), kind, number and GPU instance, if any, of an event.

        None after ``seconds`` without one.
        """
        try:
            event = call("nvmlEventSetWait_v2", self._set, round(seconds * 1000))
        except NvmlError as error:
            if error.code == TIMEOUT:
                return None
            raise
        instance = None if event.gpuInstanceId == _NO_INSTANCE else int(event.gpuInstanceId)
        return self._name(event.device), int(event.eventType), int(event.eventData), instance

    def _name(self, gpu: Handle) -> str:
        # Not queried if avoidable: a GPU that was just lost cannot return its UUID.
        if uuid := self._names.get(_address(gpu)):
            return uuid
        try:
            return str(call("nvmlDeviceGetUUID", gpu))
        except NvmlError:
            return ""

    def close(self) -> None:
        """Free it."""
        call("nvmlEventSetFree", self._set)


def _address(handle: Handle) -> int:
    return ctypes.cast(handle, ctypes.c_void_p).value or 0
