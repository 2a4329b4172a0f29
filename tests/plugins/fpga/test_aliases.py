"""Aliases: one name for each device, and files that cannot be used."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

import deviceplugin as dp
from deviceplugin_fpga import resource_names
from fpga.trees import AFU, ALL_ONES, INTERFACE, OTHER_AFU, FpgaTree

AES = {"name": "aes-gcm", "interface": INTERFACE, "function": AFU}
CARD = {"name": "pac", "interface": INTERFACE}


def write(path: Path, *entries: object) -> Path:
    path.write_text(json.dumps({"aliases": entries}))
    return path


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return write(tmp_path / "aliases.json", AES, CARD)


def problems(path: Path) -> list[str]:
    with pytest.raises(dp.ConfigError) as caught:
        resource_names.read_aliases(path)
    return str(caught.value).replace(f"{path}:1: ", "").splitlines()


# What is offered.


@pytest.mark.parametrize(
    ("mode", "name"), [("af", "aes-gcm"), ("region", "pac"), ("regiondevel", "pac")]
)
def test_a_device_is_offered_under_its_alias_alone_and_is_else_the_same(
    any_tree: FpgaTree, file: Path, mode: str, name: str
) -> None:
    any_tree.simple(AFU, OTHER_AFU)
    plain = list(any_tree.plugin(mode).discover())
    named = list(any_tree.plugin(mode, aliases=file).discover())
    assert f"fpga.intel.com/{name}" == named[0].resource != plain[0].resource
    assert plain == [replace(named[0], resource=plain[0].resource), *named[1:]]


@pytest.mark.parametrize("text", ["", "aliases: []\n"])
def test_a_file_without_entries_changes_nothing(tmp_path: Path, text: str) -> None:
    (tmp_path / "a.yaml").write_text(text)
    assert resource_names.Aliases() == resource_names.read_aliases(tmp_path / "a.yaml")


# What is refused.

OTHER = {"name": "other", "interface": INTERFACE, "function": OTHER_AFU}
FORM = "is not 1 to 63 letters, digits, '-', '_' or '.' with a letter or digit at both ends"
OWN = "is a name of the plugin's modes: choose another"


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        (
            {**AES, "name": "x", "function": f" {AFU.upper()}"},
            "[1].function: has a name already, in aliases[0].function",
        ),
        ({**CARD, "name": "aes-gcm"}, "[1].name: 'aes-gcm' is taken by aliases[0].name"),
        *(
            ({**OTHER, "name": name}, f"[1].name: {name!r} {FORM}")
            for name in ("", "-x", "x\n", "a/b", "é", "x" * 64)
        ),
        ({**OTHER, "name": "x" * 5000}, f"[1].name: '{'x' * 199} ... {'x' * 115}' {FORM}"),
        *(
            ({**OTHER, "name": name}, f"[1].name: {name!r} {OWN}")
            for name in ("af", "regiondevel", f"region-{INTERFACE}", "af-aes")
        ),
        ({**OTHER, "name": 7}, "[1].name: 7 is not a string: put it in quotes"),
        (
            {**OTHER, "interface": 12345678901234567890123456789012},
            "[1].interface: 12345678901234567890123456789012 is not a string: put it in quotes",
        ),
        ({**OTHER, "interface": "ce4"}, "[1].interface: 'ce4' is not an id of 32 hex digits"),
        ({**OTHER, "function": ""}, "[1].function: '' is not an id of 32 hex digits"),
        (
            {**OTHER, "function": ALL_ONES},
            f"[1].function: '{ALL_ONES}' is what hardware returns that does not answer",
        ),
        ({"interface": INTERFACE}, "[1]: name is missing"),
        ({"name": "x", "function": AFU}, "[1]: interface is missing"),
        ({**OTHER, "afu": AFU}, "[1].afu: unknown key: known are name, interface, function"),
    ],
)
def test_an_entry_that_cannot_be_used_is_refused(
    tmp_path: Path, entry: object, expected: str
) -> None:
    assert [f"aliases{expected}"] == problems(write(tmp_path / "aliases.json", AES, entry))


def test_everything_that_is_wrong_is_told_at_once(tmp_path: Path) -> None:
    again = {**CARD, "name": "x"}
    path = write(
        tmp_path / "aliases.json", AES, {**AES, "name": "af"}, {"name": "x"}, AES, CARD, again
    )
    assert [
        f"aliases[1].name: 'af' {OWN}",
        "aliases[2]: interface is missing",
        "aliases[3].name: 'aes-gcm' is taken by aliases[0].name",
        "aliases[3].function: has a name already, in aliases[0].function",
        "aliases[5].interface: has a name already, in aliases[4].interface",
    ] == problems(path)
