"""Patterns of paths, and expressions of Go: what they match, and what is refused."""

import contextlib
import re
import warnings
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deviceplugin_generic.configuration.globs import directories, glob, is_magic, matches, problem
from deviceplugin_generic.configuration.go_expressions import compiled


@pytest.mark.parametrize(
    ("pattern", "matching", "others"),
    [
        ("/dev/ttyUSB*", ["/dev/ttyUSB0"], ["/dev/ttyUSB/x"]),
        ("/dev/*", ["/dev/.hidden"], ["/dev/a/b"]),
        ("/dev/?", ["/dev/a"], ["/dev/ab"]),
        ("/dev/[^a]", ["/dev/b"], ["/dev/a", "/dev//"]),
        ("/dev/[!a]", ["/dev/!"], []),
        ("/dev/[a-c]", ["/dev/b"], []),
        ("/dev/**/y", ["/dev/x/y"], ["/dev/x/z/y"]),
        ("/dev/{a,b}", ["/dev/{a,b}"], ["/dev/a"]),
        (r"/dev/\*", ["/dev/*"], []),
        (r"/dev/[\]]", ["/dev/]"], []),
        ("/dev/[^c-a]", ["/dev/z"], []),
        ("/dev/[c-a]", [], ["/dev/b"]),
    ],
)
def test_a_pattern_matches_as_in_go(pattern: str, matching: list[str], others: list[str]) -> None:
    assert matching == [text for text in [*matching, *others] if matches(text, pattern)]
    assert "" == problem(pattern)


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        *(
            (pattern, "is malformed: see its [ and \\")
            for pattern in ("/[", "/[a", "/[]", "/[]a]", "/[^]", "/[-a]", "/[a-]", "/\\")
        ),
        ("dev/x", "is not absolute"),
        ("/a\0", "has a zero byte"),
    ],
)
def test_a_malformed_pattern_is_told(pattern: str, expected: str) -> None:
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


SAME = [
    (r"^ttyUSB[[:digit:]]+$", ["ttyUSB0", "ttyUSB12"], ["ttyUSB", "ttyUSBd", "ttyUSB0\n"]),
    (r"^[^[:space:]]+$", ["video0"], ["a b", "a\tb", "a\vb"]),
    (r"^[[:^alpha:]x]$", ["1", "x", "é", "-"], ["a", "Z"]),
    (r"^[[:punct:]]$", ["-", "]", "[", "~"], ["a", "0", " "]),
    (r"^video\d$", ["video0"], ["video٣"]),
    (r"^\w+$", ["tty_0"], ["é", "a-b"]),
    (r"^\s$", [" ", "\t"], ["\v", "\u2003"]),
    (r"^[\S]$", ["\v", "a"], [" ", "\n"]),
    (r"^\W$", ["é", "-"], ["_", "a"]),
    (r"\Aa\z", ["a"], ["a\n", "ba"]),
    (r"^a{,3}$", ["a{,3}"], ["", "aaa"]),
    (r"^a{x}$", ["a{x}"], ["a"]),
    (r"^\tx[\n]$", ["\tx\n"], ["txn"]),
    (r"^\Qa.b*[\E$", ["a.b*["], ["axb"]),
    (r"^\Qa.b", ["a.bc"], ["axb"]),
    (r"^\x41\x{42}\103\_$", ["ABC_"], ["abc_"]),
    (r"^(?P<n>a)(?<m>b)(?:c)$", ["abc"], ["ab"]),
    (r"^(?i)TTY(?-i)x$", ["ttyx", "TTYx"], ["ttyX"]),
    (r"x(?i)b|c", ["xB", "C"], ["Xb", "b"]),
    (r"^((?i)a|b)c$", ["Ac", "Bc"], ["aC"]),
    (r"(?m)a$", ["a\nb"], ["ab"]),
    (r"(?m:a$)b|c$", ["c"], ["c\n"]),
    (r"^a.b$", ["a-b"], ["a\nb"]),
    (r"^(?s)a.b$", ["a\nb"], ["ab"]),
    (r"^[]a]$", ["]", "a"], ["b"]),
    (r"^[^]a]$", ["b"], ["]", "a"]),
    (r"^[[a]$", ["[", "a"], ["b"]),
    (r"^[a-]$", ["a", "-"], ["b"]),
    (r"^[a&&b]$", ["&", "a"], ["c"]),
    (r"^[+--]$", ["+", ",", "-"], ["."]),
    (r"^a*?b+?c??$", ["aabbc"], ["a"]),
    (r"\bdri\b", ["a dri", "dri/card0", "édri"], ["dris"]),
    (r"^*tun$", ["tun", "net/tun"], ["tuna"]),
    (r"^+a", ["a"], ["xa"]),
    (r"$*a\b*$+\z{0,2}", ["xa"], ["x"]),
    (r"(?m:^*?$?)b\B*", ["abc"], ["a"]),
    (r"\A{0,2}a", ["xa"], ["x"]),
    ("", ["", "a"], []),
    (r"^gpiochip[0-9]|i2c-.*$", ["gpiochip0", "x-i2c-1"], ["gpio"]),
]
REFUSED = [
    (r"a(?=b)", "'(?=b' is not in Go"),
    (r"(a)\1", r"\1 is not in Go"),
    (r"a++", "repeats a repetition"),
    (r"a{2}{3}", "repeats a repetition"),
    (r"a{1001}", "repeats more than 1000 times"),
    (r"\pN+", "Unicode classes are not supported"),
    (r"[\p{Greek}]", "Unicode classes are not supported"),
    (r"(?U)a+", "the flag U is not supported"),
    (r"(?x)a", "is not in Go"),
    (r"(?)a", "has no flags"),
    (r"(?P<n>a)(?<n>b)", "given twice"),
    (r"[[:digits:]]", "[:digits:] is not a class"),
    (r"a\Z", r"\Z is not in Go"),
    (r"[\b]", r"\b is not in Go"),
    (r"\N{DIGIT ONE}", r"\N is not in Go"),
    (r"[z-a]", "z-a is not a range"),
    (r"\x{110000}", "is not a character"),
    ("a\\", "at the end"),
    (r"(a", "unterminated"),
    (r"a)", "a ) too many"),
    (r"*a", "nothing to repeat"),
    (r"a{3,2}", "min repeat greater than max repeat"),
]


@pytest.mark.parametrize(("pattern", "matching", "others"), SAME)
def test_a_pattern_matches_what_it_does_in_go(
    pattern: str, matching: list[str], others: list[str]
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        regex = compiled(pattern)
    assert matching == [text for text in matching if regex.search(text)]
    assert [] == [text for text in others if regex.search(text)]


@pytest.mark.parametrize(("pattern", "why"), REFUSED)
def test_what_go_refuses_and_what_cannot_be_done_is_refused(pattern: str, why: str) -> None:
    with pytest.raises(ValueError, match=re.escape(why)):
        compiled(pattern)


@given(st.text("ab01[]()^$.|?*+{},-\\:dDwWsSbBzAQEipPxUm<>=!#", max_size=20))
def test_no_pattern_is_more_than_refused(pattern: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with contextlib.suppress(ValueError):
            compiled(pattern).search("ab01")
