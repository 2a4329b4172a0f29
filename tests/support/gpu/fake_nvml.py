"""A fake NVIDIA driver: the library of plugins/gpu/fake-nvml, and a fleet that tests change.

::

    library = build(folder)                    # by fake_library: compiled once for its sources
    fake = FakeNvml(tmp_path / "nvml", Fleet.of(4, switch=12))
    subprocess.run(command, env=fake.environment(library))      # for another process, or
    fake.load(library, monkeypatch)            # for pynvml in this process, from the next init on

    fake.change(3, state="lost")               # or "unreachable": no handle at all; "ok": back
    fake.change(0, temperature=90, migs=(FakeMig(1, "1g.5gb"),))
    fake.remove(2)                             # and fake.add(FakeGpu(2))
    fake.fail("init", 9)                       # or "wait", "all", or a function's name
    fake.fail("nvmlDeviceGetUUID", 999, gpu=1)
    fake.delay("all", milliseconds=20)         # a call that is held goes on when this is mended
    fake.drop_driver()
    fake.mend()                                # all of fail, delay and drop_driver
    fake.xid(0, 79)                            # an event, told once; also sbe, dbe, mig_changed
    fake.by_hand("mig 0 gi=9 profile=1g.5gb start=6")   # or instance, gone: what others make
    fake.reboot()                              # without all that was made
    fake.write("not a fleet")                  # any text, until the next change
    fake.calls()["nvmlEventSetWait_v2"]        # how often it was called, by all processes

Numbers of GPUs are slots: what NVML calls an index is the place among the GPUs that are there.
A change is seen by the next call of the library, or within 5 ms in one that waits.
Sizes are in MiB, power in mW. Everything that is not set has the default that the README of the
library tells.
"""

import ctypes
import os
import struct
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

H100: dict[str, Any] = {"name": "NVIDIA H100 80GB HBM3", "memory": 81559, "compute": "9.0"}
"""Values of a GPU whose MIG mode can be switched while it is used."""
_ROW = struct.Struct("56sQ")
_IN_MIB = frozenset({"memory", "used"})


class Environment(Protocol):
    """What sets variables and puts them back, such as pytest's ``monkeypatch``."""

    def setenv(self, name: str, value: str) -> None: ...


@dataclass(frozen=True)
class FakeMig:
    """A MIG device. ``values`` are further keys of the fleet file, such as ``memory`` (MiB)."""

    gi: int
    profile: str = "1g.5gb"
    ci: int = 0
    values: Mapping[str, object] = field(default_factory=dict)

    def uuid(self, slot: int) -> str:
        """Return the UUID that it has on the GPU in this slot."""
        default = f"MIG-{slot:08x}-{self.gi:04x}-4{self.ci:03x}-8000-{slot:012x}"
        return str(self.values.get("uuid", default))

    def line(self, slot: int) -> str:
        values = {"gi": self.gi, "ci": self.ci, "profile": self.profile, **self.values}
        return f"mig {slot} {_keys(values)}"


@dataclass(frozen=True)
class FakeGpu:
    """A GPU. ``values`` are further keys of the fleet file, with _ for -."""

    slot: int
    migs: tuple[FakeMig, ...] = ()
    values: Mapping[str, object] = field(default_factory=dict)

    @property
    def uuid(self) -> str:
        default = f"GPU-{self.slot:08x}-0000-4000-8000-{self.slot:012x}"
        return str(self.values.get("uuid", default))

    @property
    def pci(self) -> str:
        """Its address as sysfs writes it."""
        return str(self.values.get("pci", f"0000:{self.slot + 1:02x}:00.0"))

    def lines(self) -> list[str]:
        gpu = f"gpu {self.slot} {_keys(self.values)}"
        return [gpu, *(mig.line(self.slot) for mig in self.migs)]


@dataclass(frozen=True)
class Fleet:
    """The GPUs of a node. What ``links`` and ``paths`` say of slots without a GPU is left out."""

    gpus: tuple[FakeGpu, ...] = ()
    links: Mapping[tuple[int, int], int] = field(default_factory=dict)
    """NVLinks between pairs of slots."""
    switch: int = 0
    """NVLinks of every GPU to NVSwitches."""
    paths: Mapping[tuple[int, int], str] = field(default_factory=dict)
    """The nearest common ancestor of pairs of slots: internal, single, multiple ..."""
    driver: Mapping[str, object] = field(default_factory=dict)
    """version, nvml, cuda; hotplug="init" to see added and removed GPUs at an init only."""

    @classmethod
    def of(
        cls,
        count: int,
        *,
        links: Mapping[tuple[int, int], int] | None = None,
        switch: int = 0,
        paths: Mapping[tuple[int, int], str] | None = None,
        migs: tuple[FakeMig, ...] = (),
        **values: object,
    ) -> "Fleet":
        """Return a fleet of equal GPUs."""
        gpus = tuple(FakeGpu(slot, migs, values) for slot in range(count))
        return cls(gpus, links or {}, switch, paths or {})

    def lines(self) -> list[str]:
        slots = {gpu.slot for gpu in self.gpus}
        lines = [f"driver {_keys(self.driver)}"]
        for gpu in self.gpus:
            lines += gpu.lines()
        for (one, other), count in self.links.items():
            if {one, other} <= slots:
                lines.append(f"link {one} {other} count={count}")
        if self.switch:
            lines.append(f"switch all count={self.switch}")
        for (one, other), level in self.paths.items():
            if {one, other} <= slots:
                lines.append(f"path {one} {other} {level}")
        return lines


class FakeNvml:
    """A fleet file in ``folder`` and the file in which the library counts calls."""

    def __init__(self, folder: Path, fleet: Fleet | None = None) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.path, self.counters = folder / "node.fleet", folder / "calls"
        self.journal = folder / "node.fleet.made"
        """What was made since the boot: the driver's state, which outlives processes."""
        self.nodes = folder / "dev"
        """Where the library opens ``nvidiaN``, if it is there."""
        self._stamp = time.time_ns()
        self._faults: list[str] = []
        self._events: list[str] = []
        self.set(fleet or Fleet())

    def set(self, fleet: Fleet) -> None:
        """Have another fleet. Faults and events stay."""
        self.fleet = fleet
        self.write("\n".join([*fleet.lines(), *self._faults, *self._events, ""]))

    def write(self, text: str) -> None:
        """Write the fleet file, in one step, so that every change is seen."""
        partial = self.path.with_suffix(".partial")
        partial.write_text(text)
        self._stamp = max(self._stamp + 1, time.time_ns())
        os.utime(partial, ns=(self._stamp, self._stamp))
        partial.replace(self.path)

    def change(self, slot: int, migs: tuple[FakeMig, ...] | None = None, **values: object) -> None:
        """Set values of a GPU, and its MIG devices if given."""
        [gpu] = [gpu for gpu in self.fleet.gpus if gpu.slot == slot]
        fresh = replace(
            gpu, migs=gpu.migs if migs is None else migs, values={**gpu.values, **values}
        )
        gpus = tuple(fresh if each is gpu else each for each in self.fleet.gpus)
        self.set(replace(self.fleet, gpus=gpus))

    def remove(self, slot: int) -> None:
        gpus = tuple(gpu for gpu in self.fleet.gpus if gpu.slot != slot)
        self.set(replace(self.fleet, gpus=gpus))

    def add(self, gpu: FakeGpu) -> None:
        """Add a GPU; NVML's order is that of the slots."""
        gpus = sorted([*self.fleet.gpus, gpu], key=lambda gpu: gpu.slot)
        self.set(replace(self.fleet, gpus=tuple(gpus)))

    def fail(self, function: str, code: int, *, gpu: int | None = None) -> None:
        """Have calls return an error: of ``init``, ``wait``, ``all`` or one function."""
        self._fault(function, {"rc": code}, gpu)

    def delay(self, function: str, *, milliseconds: int, gpu: int | None = None) -> None:
        """Make calls slow. Those of ``wait`` are held before they wait."""
        self._fault(function, {"delay": milliseconds}, gpu)

    def drop_driver(self) -> None:
        """Unload the driver: init gives 9 (driver not loaded), the rest 1 (uninitialized)."""
        self._faults.append("driver gone=yes")
        self.set(self.fleet)

    def mend(self) -> None:
        """End all failures and delays, and load the driver."""
        self._faults.clear()
        self.set(self.fleet)

    def xid(self, gpu: int, code: int, *, gi: int | None = None, ci: int | None = None) -> None:
        """Report a critical error to the event sets that exist now."""
        self._event("xid", {"gpu": gpu, "code": code, "gi": gi, "ci": ci})

    def mig_changed(self, gpu: int) -> None:
        """Report another layout of MIG devices; ``change`` alone reports nothing."""
        self._event("mig", {"gpu": gpu})

    def sbe(self, gpu: int) -> None:
        """Report a corrected error of the memory."""
        self._event("sbe", {"gpu": gpu})

    def dbe(self, gpu: int) -> None:
        """Report an uncorrected error of the memory."""
        self._event("dbe", {"gpu": gpu})

    def reset(self, slot: int) -> None:
        """Reset a GPU, as ``nvidia-smi --gpu-reset`` does: BlockingIOError while it is open."""
        if self.is_open(slot):
            raise BlockingIOError(f"GPU {slot} is in use")
        self.change(slot, state="ok")

    def by_hand(self, line: str) -> None:
        """Make or remove something as somebody else does, with ``nvidia-smi mig``."""
        with self.journal.open("a") as journal:
            journal.write(f"{line}\n")

    def made(self) -> list[str]:
        """Return what was made and removed since the boot, a line each."""
        return self.journal.read_text().splitlines() if self.journal.exists() else []

    def reboot(self) -> None:
        self.journal.unlink(missing_ok=True)

    def is_open(self, slot: int) -> bool:
        """Return whether any process has the device node of a GPU open."""
        node = (self.nodes / f"nvidia{slot}").stat()
        links: list[Path] = []
        for process in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):  # it has ended
                links += (process / "fd").iterdir()
        for link in links:
            with suppress(OSError):  # closed meanwhile
                if os.path.samestat(link.stat(), node):
                    return True
        return False

    def calls(self) -> Counter[str]:
        """Return how often each function was called so far."""
        rows = _ROW.iter_unpack(self.counters.read_bytes()) if self.counters.exists() else ()
        counts = {name.rstrip(b"\0").decode(): count for name, count in rows}
        return Counter({name: count for name, count in counts.items() if count})

    def environment(self, library: Path) -> dict[str, str]:
        """Return this process's environment, with which others find the library and the fleet."""
        folders = [str(library.parent), os.environ.get("LD_LIBRARY_PATH", "")]
        path = ":".join(filter(None, folders))
        return {**os.environ, "LD_LIBRARY_PATH": path, **self._variables()}

    def load(self, library: Path, environment: Environment) -> None:
        """Make pynvml in this process find the library, and the next init this fleet.

        pynvml loads a library once for the life of a process, and keeps it.
        """
        for name, value in self._variables().items():
            environment.setenv(name, value)
        ctypes.CDLL(str(library), ctypes.RTLD_GLOBAL)

    def _variables(self) -> dict[str, str]:
        return {
            "FAKE_NVML_FLEET": str(self.path),
            "FAKE_NVML_CALLS": str(self.counters),
            "FAKE_NVML_NODES": str(self.nodes),
        }

    def _fault(self, function: str, values: dict[str, int], gpu: int | None) -> None:
        self._faults.append(f"fault {function} {_keys({**values, 'gpu': gpu})}")
        self.set(self.fleet)

    def _event(self, kind: str, values: Mapping[str, int | None]) -> None:
        self._events.append(f"event {len(self._events) + 1} {kind} {_keys(values)}")
        self.set(self.fleet)


def _keys(values: Mapping[str, object]) -> str:
    """Write ``key=value`` of all but None; sizes are in MiB."""
    words = []
    for key, value in values.items():
        unit = "MiB" if key in _IN_MIB else ""
        text = {True: "yes", False: "no"}.get(value, value) if isinstance(value, bool) else value
        if value is not None:
            words.append(f'{key.replace("_", "-")}="{text}{unit}"')
    return " ".join(words)
