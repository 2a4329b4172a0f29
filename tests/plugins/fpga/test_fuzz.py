"""Whatever sysfs contains, a look does not fail, and no name that is not valid is offered."""

import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from deviceplugin._config.names import resource_name_problem
from deviceplugin._inventory.validation import (
    device_problem,
)
from deviceplugin_fpga import FpgaPlugin, FpgaSettings
from fpga.trees import AFU, ALL_ONES, BOTH, INTERFACE, FpgaTree

TEXTS: Final = st.one_of(
    st.binary(max_size=80),
    st.sampled_from([b"", b"\n", ALL_ONES.encode(), b"0x120000", b"-1", b"9" * 5000, b"\0" * 40]),
)
DEEDS: Final = st.lists(
    st.tuples(
        st.sampled_from(["write", "remove", "loop", "to a folder", "folder", "copy", "outside"]),
        st.integers(0, 10_000),
        TEXTS,
    ),
    min_size=1,
    max_size=8,
)


@pytest.fixture(scope="module", params=sorted(BOTH))
def pristine(request: pytest.FixtureRequest) -> Iterator[Path]:
    """Return a node with two cards, one of them with a virtual function."""
    root = Path(tempfile.mkdtemp(prefix="fpga-"))
    tree = FpgaTree(root / "node", BOTH[request.param])
    ports = tree.simple(AFU, AFU)
    tree.simple(AFU, address="0000:5e:00.0", number=1)
    physical = ports[0].parents[2]
    virtual = tree.card("0000:3b:00.1", physical=physical)
    tree.port(tree.region(virtual, 7), 70)
    tree.set_error(ports[0], "errors", "0x0")
    tree.set_error(ports[0].parent / f"{tree.words.fme}0", "catfatal_errors", "0x0")
    yield root
    shutil.rmtree(root)


def do(deed: str, path: Path, text: bytes, everything: list[Path]) -> None:
    """Do something bad to ``path``."""
    if path.is_symlink() or path.is_file():
        path.unlink()
    elif path.is_dir():
        shutil.rmtree(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    deeds: dict[str, Callable[[], object]] = {
        "write": lambda: path.write_bytes(text),
        "remove": lambda: None,
        "loop": lambda: path.symlink_to(path.name),
        "to a folder": lambda: path.symlink_to(path.parents[1]),
        "folder": path.mkdir,
        "copy": lambda: path.symlink_to(everything[len(text) % len(everything)]),
        "outside": lambda: path.symlink_to("/etc"),
    }
    deeds[deed]()


@settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(deeds=DEEDS, mode=st.sampled_from(["af", "region", "regiondevel"]))
def test_no_content_of_sysfs_makes_a_look_fail(
    pristine: Path, deeds: list[tuple[str, int, bytes]], mode: str
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        node = Path(folder) / "node"
        shutil.copytree(pristine / "node", node, symlinks=True)
        retarget(node, pristine / "node")
        plugin = FpgaPlugin(FpgaSettings(sysfs_dir=node / "sys", mode=mode))  # type: ignore[arg-type]
        assert "" == problem(plugin)
        everything = sorted(
            path for path in (node / "sys").rglob("*") if path != node / "sys/class"
        )
        for deed, index, text in deeds:
            path = everything[index % len(everything)]
            if not any(parent.is_symlink() or parent.is_file() for parent in path.parents):
                do(deed, path, text, everything)
        assert "" == problem(plugin)


def retarget(node: Path, old: Path) -> None:
    """Have the links of a copied tree lead into the copy."""
    for path in node.rglob("*"):
        if path.is_symlink():
            target = node / path.readlink().relative_to(old)
            path.unlink()
            path.symlink_to(target)


def problem(plugin: FpgaPlugin) -> str:
    """Look; return what is wrong with the devices that would be offered."""
    for device in plugin.discover():
        found = device_problem(device) or resource_name_problem(device.resource)
        if found:
            return found
    return ""


def test_a_fuzz_that_would_find_something_does(tmp_path: Path) -> None:
    tree = FpgaTree(tmp_path / "node", BOTH["dfl"])
    tree.simple(AFU)
    do("write", tree.sys / "devices/pci0000:3a/0000:3b:00.0/class", b"0x0", [])
    plugin = FpgaPlugin(FpgaSettings(sysfs_dir=tree.sys))
    assert ("", []) == (problem(plugin), list(plugin.discover()))
    assert INTERFACE not in str(plugin._problems)
