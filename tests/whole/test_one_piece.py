"""Whatever becomes of hardware, no piece of it has two holders.

The seeds are fixed. ``PIECE_SEEDS=1000:2000`` plays others, and ``PIECE_STEPS`` sets the length.
"""

import os
from pathlib import Path
from random import Random

import pytest

import deviceplugin as dp
from deviceplugin_fpga import FpgaPlugin, FpgaSettings
from deviceplugin_generic import GenericPlugin, GenericSettings, Roots
from deviceplugin_generic.configuration.loading import Devices, Domains
from deviceplugin_simulated import SimulatedPlugin, SimulatedSettings
from fpga.trees import AFU, DFL, OTHER_AFU, FpgaTree
from hardware.tree import Hardware
from one_piece.history import History

FIRST, _, LAST = os.environ.get("PIECE_SEEDS", "0:6").partition(":")
SEEDS = range(int(FIRST), int(LAST))
STEPS = int(os.environ.get("PIECE_STEPS", "150"))
needs_root = pytest.mark.skipif(os.getuid() != 0, reason="making device nodes needs root")


class Sticks:
    """Sticks that are plugged and unplugged, and a file that says anything about them."""

    def __init__(self, root: Path, random: Random) -> None:
        self._random = random
        hardware = Hardware(root)
        self._roots = Roots(hardware.dev, hardware.sys, hardware.udev)
        self._dev = hardware.dev
        (self._dev / "by-id").mkdir()
        self._plugged: dict[str, int] = {}

    def __call__(self) -> dp.Plugin:
        for _ in range(self._random.randrange(3)):
            self._plug()
        domains = self._random.choice([("x.io",), ("y.io",), ("x.io", "y.io")])
        count = min(3, self._random.randrange(1, 7))
        entries = [self._entry(name) for name in ("aa", "bb", "cc")[:count]]
        overlap = self._random.choice(["first", "refuse"])
        settings = GenericSettings(
            device=Devices.parse(entries),
            domain=Domains(domains),
            overlap=overlap,  # type: ignore[arg-type]
        )
        return GenericPlugin(settings, self._roots)

    def _plug(self) -> None:
        name = self._random.choice("ABCD")
        if (number := self._plugged.pop(name, None)) is not None:
            (self._dev / f"ttyUSB{number}").unlink()
            (self._dev / "by-id" / name).unlink()
            return
        number = self._random.choice(list({*range(5)} - {*self._plugged.values()}))
        self._plugged[name] = number
        os.mknod(self._dev / f"ttyUSB{number}", 0o020600, os.makedev(188, number))
        (self._dev / "by-id" / name).symlink_to(self._dev / f"ttyUSB{number}")

    def _entry(self, name: str) -> str:
        some = self._random.sample("ABCD", 2)
        groups = [
            [f"{self._dev}/ttyUSB*"],
            [f"{self._dev}/by-id/*"],
            [f"{self._dev}/by-id/{some[0]}"],
            [f"{self._dev}/by-id/{some[0]}", f"{self._dev}/by-id/{some[1]}"],
            [f"{self._dev}/ttyUSB{number}" for number in range(self._random.randrange(1, 3))],
            [f"{self._dev}/by-id"],
        ]
        paths = ", ".join(
            f"{{path: '{path}', optional: {str(bool(place)).lower()}}}"
            for place, path in enumerate(self._random.choice(groups))
        )
        count = self._random.choice([1, 1, 2])
        return f"{{name: {name}, groups: [{{count: {count}, paths: [{paths}]}}]}}"


class Cards:
    """Two cards whose ports are programmed anew, and a mode that changes."""

    def __init__(self, root: Path, random: Random) -> None:
        self._random = random
        self._tree = FpgaTree(root / "node", DFL)
        self._cdi = root / "cdi"
        self._ports = [
            *self._tree.simple(AFU, OTHER_AFU),
            *self._tree.simple(AFU, address="0000:5e:00.0", number=1),
        ]

    def __call__(self) -> dp.Plugin:
        port = self._random.choice(self._ports)
        (port / "afu_id").write_text(f"{self._random.choice([AFU, OTHER_AFU])}\n")
        mode = self._random.choice(["af", "region", "regiondevel"])
        return FpgaPlugin(
            FpgaSettings(sysfs_dir=self._tree.sys, cdi_dir=self._cdi, mode=mode)  # type: ignore[arg-type]
        )


class Pretended:
    """Simulated devices with device nodes, whose names and resources change."""

    def __init__(self, root: Path, random: Random) -> None:
        self._random = random
        self._root = root
        for number in range(4):
            (root / f"node{number}").touch()

    def __call__(self) -> dp.Plugin:
        names = self._random.sample(["x.io/a", "x.io/b", "x.io/c"], self._random.randrange(1, 3))
        prefix = self._random.choice(["dev", "gpu"])
        text = "resources:\n"
        for place, name in enumerate(names):
            node = f"{self._root}/node{{index}}" if place == 0 else f"/dev/null/{name}/{{index}}"
            text += (
                f"  {name}:\n"
                f"    count: {self._random.randrange(1, 5)}\n"
                f"    id: '{prefix if place == 0 else 'other'}-{{index}}'\n"
                f"    nodes: ['{node}']\n"
            )
        file = self._root / "devices.yaml"
        file.write_text(text)
        return SimulatedPlugin(SimulatedSettings(devices=file))


Kind = type[Sticks] | type[Cards] | type[Pretended]


@pytest.fixture(params=[pytest.param(Sticks, marks=needs_root), Cards, Pretended])
def kind(request: pytest.FixtureRequest) -> Kind:
    found: Kind = request.param
    return found


def test_no_piece_has_two_holders_and_none_is_lost(root: Path, kind: Kind) -> None:
    refused = 0
    for seed in SEEDS:
        folder = root / str(seed)
        folder.mkdir()
        try:
            history = History(kind(folder, Random(seed)), seed)
            history.play(STEPS)
            history.come_to_rest()
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise
        refused += history.refused
    assert refused, "nobody was refused: the histories test nothing"
