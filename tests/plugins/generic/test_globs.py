from pathlib import Path

import pytest

from deviceplugin_generic.configuration.globs import directories, glob, is_magic, matches, problem


@pytest.mark.parametrize(
    ("text", "pattern"),
    [
        ("/dev/ttyUSB0", "/dev/ttyUSB*"),
        ("/dev/.hidden", "/dev/*"),
        ("/dev/a", "/dev/?"),
        ("/dev/b", "/dev/[^a]"),
        ("/dev/!", "/dev/[!a]"),
        ("/dev/b", "/dev/[a-c]"),
        ("/dev/x/y", "/dev/**/y"),
        ("/dev/{a,b}", "/dev/{a,b}"),
        ("/dev/*", r"/dev/\*"),
        ("/dev/]", r"/dev/[\]]"),
        ("/dev/z", "/dev/[^c-a]"),
    ],
)
def test_a_pattern_matches_as_in_go(text: str, pattern: str) -> None:
    assert matches(text, pattern)
    assert "" == problem(pattern)


@pytest.mark.parametrize(
    ("text", "pattern"),
    [
        ("/dev/a/b", "/dev/*"),
        ("/dev/a", "/dev/[^a]"),
        ("/dev/x/y/z", "/dev/**/z"),
        ("/dev/a", "/dev/{a,b}"),
        ("/dev/ab", "/dev/?"),
        ("/dev/b", "/dev/[c-a]"),
        ("/dev//", "/dev/[^a]"),
    ],
)
def test_a_pattern_matches_nothing_else(text: str, pattern: str) -> None:
    assert not matches(text, pattern)


@pytest.mark.parametrize("pattern", ["/[", "/[a", "/[]", "/[]a]", "/[^]", "/[-a]", "/[a-]", "/\\"])
def test_a_malformed_pattern_is_told(pattern: str) -> None:
    assert "is malformed: see its [ and \\" == problem(pattern)


@pytest.mark.parametrize(
    ("pattern", "expected"), [("dev/x", "is not absolute"), ("/a\0", "has a zero byte")]
)
def test_a_pattern_is_an_absolute_path(pattern: str, expected: str) -> None:
    assert expected == problem(pattern)


def test_hits_are_in_the_order_of_their_bytes(tmp_path: Path) -> None:
    for name in ("x10", "x9", "xa", "x\u00e9", ".x", "a", "a/x1"):
        path = tmp_path / name
        path.mkdir(parents=True)
    assert [f"{tmp_path}/{name}" for name in ("x10", "x9", "xa", "x\u00e9")] == glob(
        f"{tmp_path}/x*"
    )
    assert [f"{tmp_path}/a/x1"] == glob(f"{tmp_path}//a/../*/x1/")
    assert ["/"] == glob("/")


def test_a_broken_link_is_found_by_a_pattern_only(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("nowhere")
    assert [] == glob(f"{tmp_path}/link")
    assert [f"{tmp_path}/link"] == glob(f"{tmp_path}/lin?")


def test_directories_are_those_in_which_hits_can_come_and_go(tmp_path: Path) -> None:
    (tmp_path / "a1").mkdir()
    assert {f"{tmp_path}/none"} == directories(f"{tmp_path}/none/x*")
    expected = {str(tmp_path), f"{tmp_path}/a1"}
    assert expected == directories(f"{tmp_path}/a?/x*")
    assert [] == glob(f"{tmp_path}/none/x*")
    assert is_magic("/a?")
