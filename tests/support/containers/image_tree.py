"""The packages of an image as its Dockerfile lays them out, without a build; and their commands.

The workspace's packages come from their sources, and what they need from where it is installed.
"""

import json
import os
import shutil
from collections.abc import Iterator
from importlib.metadata import Distribution
from pathlib import Path
from typing import Any

import images
from deviceplugin.__main__ import COMMANDS
from deviceplugin.kit.cdi import Edits, Specification
from deviceplugin_testing.simulator._device_manager import records
from needed_packages import closure
from trim import trim

ABSENT = {name: one.source for name, one in COMMANDS.items() if one.package != "deviceplugin"}
"""The commands of ``deviceplugin`` that images lack, and where the packages that have them are."""


def lay_out(name: str, folder: Path) -> Path:
    """Make the folder of the packages of the image ``name``, trimmed; return it."""
    wanted = ["deviceplugin-operator"]
    if name != images.OPERATOR:
        wanted = [f"deviceplugin-{name}", "deviceplugin[cluster]"]  # as build/Dockerfile says
    for package in closure(*wanted).values():
        for path, place in _files(package):
            (folder / place).parent.mkdir(parents=True, exist_ok=True)
            _copy(path, folder / place)
    trim(folder)
    return folder


def _files(package: Distribution) -> Iterator[tuple[Path, Path]]:
    """Yield the files of a package, with their places in the folder."""
    for file in package.files or ():
        path = Path(str(package.locate_file(file)))
        if file.parts[0] == "..":  # a command
            continue
        if file.suffix != ".pth":
            yield path, Path(file)
            continue
        sources = Path(path.read_text(encoding="utf-8").strip())  # it is installed for editing
        for source in sources.rglob("*"):
            if source.is_file():
                yield source, source.relative_to(sources)


def _copy(path: Path, target: Path) -> None:
    try:
        os.link(path, target)
    except OSError:  # on another file system
        shutil.copyfile(path, target)


def small_node(root: Path) -> Path:
    """Make the root of a node with files that the doctor reads, and return it."""
    plugin_dir, cdi = root / "var/lib/kubelet/device-plugins", root / "etc/cdi"
    plugin_dir.mkdir(parents=True)
    records.write_checkpoint(plugin_dir, [], {"example.com/gopher": ["gary"]})
    cdi.mkdir(parents=True)
    document = Specification("example.com/gopher", {"gary": Edits({"A": "1"})}).document()
    (cdi / "a.json").write_text(json.dumps(document))
    (cdi / "b.yaml").write_text(json.dumps({**document, "kind": "example.com/b"}))
    return root


def judge(report: Any) -> None:
    """Assert that what ``image_commands.py`` printed in an image is right."""
    assert {} == report["modules"]
    found = {words: tuple(answer) for words, answer in report["commands"].items()}
    expected = dict.fromkeys(found, (0, ""))
    needed = f"needs deviceplugin-testing: in a checkout, pip install {ABSENT['accept']}"
    of_plugins = [one for one in found if one.endswith("-device-plugin accept")]
    expected |= {one: (2, f"{one}: {needed}\n") for one in of_plugins}
    if "doctor" in report:  # all packages were looked at
        absent = "deviceplugin: {} is not installed: in a checkout, pip install {}\n"
        expected |= {f"deviceplugin {one}": (0, "") for one in COMMANDS}
        expected |= {f"deviceplugin {one}": (2, absent.format(one, ABSENT[one])) for one in ABSENT}
        _judge_doctor({(one["check"], one["found"]) for one in report["doctor"]})
    assert expected == found


def _judge_doctor(said: set[tuple[str, str]]) -> None:
    assert [] == [text for _, text in said if "check fails" in text]
    assert said > {("checkpoint", "is intact, and has devices of 0 pods"), ("cdi", "has 1 devices")}
    assert {"mode", "open-files", "selinux"} < {check for check, _ in said}
