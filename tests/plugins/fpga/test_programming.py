"""From wishes to regions that are programmed: which, when not, and never one twice."""

import ctypes
import errno
import fcntl
import io
import math
import os
import re
import struct
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from deviceplugin_fpga.drivers import DFL, OPAE, Driver
from deviceplugin_fpga.hook import container_request, programming
from deviceplugin_fpga.hook.files import HookError
from deviceplugin_fpga.hook.programming import Kernel
from fpga.bitstreams import aocx, gbs
from fpga.cards import FakeCards, bundle
from fpga.trees import AFU, ALL_ONES, INTERFACE, OTHER_AFU, FpgaTree

BLANK = "1" * 32
OTHER = "bfac4d851ee856fe8c95865ce1bbaa2d"
UNIQUE = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture
def bitstreams(tmp_path: Path) -> Path:
    folder = tmp_path / "bitstreams" / INTERFACE
    folder.mkdir(parents=True)
    for afu in (AFU, OTHER_AFU):
        (folder / f"{afu}.gbs").write_bytes(gbs(afu=afu))
    (folder / f"{UNIQUE}.aocx").write_bytes(aocx(UNIQUE))
    return folder.parent


class Container:
    """A container with FPGAs, and the hook that runs before it starts."""

    def __init__(self, tree: FpgaTree, bitstreams: Path) -> None:
        self.tree, self.bitstreams, self.cards = tree, bitstreams, FakeCards(tree)
        self.folder = tree.sys.parent / "bundle"

    def start(self, ports: Sequence[Path], *afus: str, **environment: str) -> list[str]:
        for number, afu in enumerate(afus, 1):
            environment[f"FPGA_REGION_{number}"] = INTERFACE
            environment[f"FPGA_AFU_{number}"] = afu
        return self.run(bundle(self.folder, ports, **environment))

    def run(self, state: bytes) -> list[str]:
        request = container_request.read(io.BytesIO(state))
        return programming.fulfil(request, self.tree.sysfs, self.bitstreams, self.cards)

    def refusal(self, ports: Sequence[Path], *afus: str, **environment: str) -> str:
        with pytest.raises(HookError) as caught:
            self.start(ports, *afus, **environment)
        return str(caught.value)


@pytest.fixture
def container(any_tree: FpgaTree, bitstreams: Path) -> Container:
    return Container(any_tree, bitstreams)


def programmed(ports: Sequence[Path]) -> list[str]:
    return [(port / "afu_id").read_text().strip() for port in ports]


# What is programmed.


@pytest.mark.parametrize(
    ("before", "asked", "after", "changed"),
    [
        ([BLANK], [AFU], [AFU], [0]),
        ([AFU], [AFU], [AFU], []),
        ([""], [AFU], [AFU], [0]),
        ([BLANK], [UNIQUE], [AFU], [0]),  # an OpenCL program has the function of its platform
        ([BLANK, BLANK], [AFU, OTHER_AFU], [AFU, OTHER_AFU], [0, 1]),
        ([AFU, BLANK], [AFU, OTHER_AFU], [AFU, OTHER_AFU], [1]),
        ([AFU, BLANK], [AFU, AFU], [AFU, AFU], [1]),
        ([OTHER_AFU, BLANK], [AFU, OTHER_AFU], [OTHER_AFU, AFU], [1]),
    ],
)
def test_each_region_is_a_port_that_has_the_function_or_is_programmed(
    container: Container,
    before: list[str],
    asked: list[str],
    after: list[str],
    changed: list[int],
) -> None:
    ports = container.tree.simple(*before)
    assert [ports[number].name for number in changed] == container.start(ports, *asked)
    assert after == programmed(ports)
    fme = f"{container.tree.words.fme}0"
    assert [(fme, number, after[number]) for number in changed] == container.cards.programmed


def test_regions_on_two_cards_go_through_their_own_engines(container: Container) -> None:
    ports = [
        *container.tree.simple(BLANK),
        *container.tree.simple(BLANK, address="0000:5e:00.0", number=1),
    ]
    container.start(ports, AFU, AFU)
    fme = container.tree.words.fme
    assert [(f"{fme}0", 0, AFU), (f"{fme}1", 0, AFU)] == container.cards.programmed


def test_a_virtual_function_is_programmed_through_the_physical_one(container: Container) -> None:
    tree = container.tree
    physical = tree.card()
    tree.fme(tree.region(physical, 0))
    virtual = tree.card("0000:3b:00.1", physical=physical)
    port = tree.port(tree.region(virtual, 1), 1, AFU, on_fme=1)
    (port / "afu_id").write_text(BLANK)
    container.cards.is_deaf = True
    assert f"{port.name}: has AFU {BLANK} after programming, not {AFU}" == container.refusal(
        [port], AFU
    )
    assert [(f"{tree.words.fme}0", 1, AFU)] == container.cards.programmed


# What is refused. Nothing is programmed then.


def test_more_regions_than_ports_are_refused(container: Container) -> None:
    ports = container.tree.simple(BLANK)
    text = "FPGA_REGION_{}: no free port of interface {}"
    assert text.format(2, INTERFACE) == container.refusal(ports, AFU, AFU)
    assert text.format(2, INTERFACE) == container.refusal([*ports, *ports], AFU, OTHER_AFU)
    assert text.format(1, OTHER) == container.refusal(ports, FPGA_REGION_1=OTHER, FPGA_AFU_1=AFU)
    assert [] == container.cards.programmed


def test_nothing_is_programmed_if_one_bitstream_is_missing(container: Container) -> None:
    ports = container.tree.simple(BLANK, BLANK)
    missing = "2" * 32
    assert container.refusal(ports, AFU, missing).endswith(f": no bitstream {missing}.gbs or .aocx")
    assert [] == container.cards.programmed


def test_a_card_that_does_not_answer_is_refused(container: Container) -> None:
    region = container.tree.region(container.tree.card())
    container.tree.fme(region, 0, ALL_ONES)
    port = container.tree.port(region, 0, ALL_ONES)
    fme = f"{container.tree.words.fme}0"
    text = f"{fme}: interface id is all ones: the hardware does not answer"
    assert text == container.refusal([port], AFU)


def test_a_port_without_a_number_and_hardware_that_refuses_are_told(container: Container) -> None:
    ports = container.tree.simple(BLANK)
    container.cards.error = OSError(errno.EIO, "Input/output error")
    text = container.refusal(ports, AFU)
    assert text.startswith(f"{ports[0].name}: ")
    assert text.endswith(f"{AFU}.gbs: not programmed: [Errno 5] Input/output error")
    container.cards.programmed.clear()
    for value in ("", "x"):
        (ports[0] / "id").write_text(value)
        assert f"not programmed: {ports[0].name}: id: " in container.refusal(ports, AFU)
    assert [] == container.cards.programmed


def test_a_device_number_that_is_another_devices_is_refused(container: Container) -> None:
    ports = container.tree.simple(BLANK)
    state = bundle(container.folder, ports, FPGA_REGION_1=INTERFACE, FPGA_AFU_1=AFU)
    path = container.folder / "config.json"
    text = path.read_text()
    path.write_text(text.replace(ports[0].name, f"{ports[0].name}1"))
    with pytest.raises(HookError, match=f"{ports[0].name}1: device 240:1 is {ports[0].name}"):
        container.run(state)
    path.write_text(text)
    place = container.tree.sys / "dev/char/240:1"
    place.unlink()
    with pytest.raises(HookError, match=f"^{place}: No such file or directory$"):
        container.run(state)


# Several hooks at once.


def test_hooks_that_run_at_once_program_no_port_twice(container: Container) -> None:
    ports = container.tree.simple(BLANK, BLANK)
    first = {"FPGA_REGION_1": INTERFACE, "FPGA_AFU_1": AFU}
    second = {"FPGA_REGION_2": INTERFACE, "FPGA_AFU_2": OTHER_AFU}
    state = bundle(container.folder, ports, **first, **second)
    start = threading.Barrier(8)

    def hook(_: int) -> list[str]:
        start.wait()
        with programming.locked(container.folder / "lock", 10):
            return container.run(state)

    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(hook, range(8)))
    assert [[]] * 7 == sorted(results)[:7]
    assert [0, 1] == [port for _, port, _ in container.cards.programmed]


@pytest.mark.parametrize("patience", [0, math.nan])
def test_a_lock_that_is_held_for_too_long_is_given_up(tmp_path: Path, patience: float) -> None:
    path = tmp_path / "lock"
    with (
        programming.locked(path, 0),
        pytest.raises(HookError, match=f"lock: another hook has had the lock for {patience:g} s"),
        programming.locked(path, patience),
    ):
        pytest.fail("two have the lock")
    with programming.locked(path, 0):
        assert 0o600 == path.stat().st_mode & 0o777
    path.unlink()
    path.symlink_to(tmp_path / "other")
    with pytest.raises(OSError, match="symbolic links"), programming.locked(path, 0):
        pytest.fail("followed")
    assert not (tmp_path / "other").exists()


# The kernel's side.


class Ioctl:
    """In the place of fcntl.ioctl: keeps what the kernel would see."""

    def __init__(self) -> None:
        self.error: OSError | None = None
        self.status = 0
        self.node = ""
        self.request = 0
        self.fields: tuple[int, ...] = ()
        self.image = b""

    def __call__(self, descriptor: int, request: int, argument: bytearray, mutate: bool) -> int:
        assert mutate
        self.node = str(Path(f"/proc/self/fd/{descriptor}").readlink())
        self.request = request
        layout = "=IIIIQQ" if len(argument) == 32 else "=IIIIQ"
        self.fields = struct.unpack(layout, argument)
        self.image = ctypes.string_at(self.fields[4], self.fields[3])
        if len(argument) == 32:
            struct.pack_into("=Q", argument, 24, self.status)
        if self.error:
            raise self.error
        return 0


@pytest.fixture
def ioctl(monkeypatch: pytest.MonkeyPatch) -> Ioctl:
    fake = Ioctl()
    monkeypatch.setattr(fcntl, "ioctl", fake)
    return fake


@pytest.mark.parametrize(
    ("driver", "request_number", "size", "rest"),
    [(DFL, 0xB680, 24, ()), (OPAE, 0xB580, 32, (0,))],
    ids=["dfl", "opae"],
)
def test_the_kernel_is_called_as_its_headers_say(
    tmp_path: Path, ioctl: Ioctl, driver: Driver, request_number: int, size: int, rest: Any
) -> None:
    (tmp_path / "fme").touch()
    Kernel(tmp_path).program(driver, "fme", 3, memoryview(b"an image"))
    assert (f"{tmp_path}/fme", request_number) == (ioctl.node, ioctl.request)
    assert (size, 0, 3, 8, *rest) == (*ioctl.fields[:4], *ioctl.fields[5:])
    assert b"an image" == ioctl.image


@pytest.mark.parametrize(
    ("driver", "status", "expected"),
    [
        (DFL, 0, "[Errno 5] Input/output error: 'fme'"),
        (OPAE, 0, "[Errno 5] Input/output error: 'fme'"),
        (OPAE, 6, "[Errno 5] Input/output error: status 0x6: 'fme'"),
    ],
    ids=["dfl", "opae", "opae with a status"],
)
def test_an_error_of_the_kernel_is_told(
    tmp_path: Path, ioctl: Ioctl, driver: Driver, status: int, expected: str
) -> None:
    (tmp_path / "fme").touch()
    ioctl.error, ioctl.status = OSError(errno.EIO, os.strerror(errno.EIO)), status
    with pytest.raises(OSError, match=f"^{re.escape(expected)}$"):
        Kernel(tmp_path).program(driver, "fme", 0, memoryview(b"x"))


def test_a_real_kernel_refuses_what_is_no_fpga(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        Kernel(tmp_path).program(DFL, "fme", 0, memoryview(b"x"))
    (tmp_path / "fme").touch()
    with pytest.raises(OSError, match="Inappropriate ioctl for device"):
        Kernel(tmp_path).program(DFL, "fme", 0, memoryview(b"x"))
