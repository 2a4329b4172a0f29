"""Names of resources by the models of devices."""

import logging
import re
from collections.abc import Sequence

import pytest

import deviceplugin as dp
from deviceplugin.kit.configuration import finished, of_text
from deviceplugin.kit.naming import Named, Naming, UnusedNames, naming

KIND = naming("example.com", "slices")
BIG, SMALL = ("0000:01:00.0", "Lamp 9000 XL"), ("0000:02:00.0", "Lamp 9000")


def read(text: str) -> Naming:
    return finished(of_text(text, "config.yaml"), KIND)


@pytest.mark.parametrize(
    ("patterns", "expected"),
    [
        ([], ["", ""]),
        ([("*XL", "xl"), ("*9000*", "lamp")], ["xl", "lamp"]),
        ([("*9000*", "lamp"), ("*XL", "xl")], ["lamp", "lamp"]),
        ([("*xl", "lamp"), ("LAMP 9000", "lamp")], ["lamp", "lamp"]),
        ([("0000:02:*", "second")], ["", "second"]),
        ([("9000", "lamp")], ["", ""]),
        ([("lamp 900[0-9]", "lamp")], ["", "lamp"]),
    ],
)
def test_the_first_pattern_that_matches_any_name_names_the_resource(
    patterns: Sequence[tuple[str, str]], expected: list[str]
) -> None:
    named = tuple(Named(*one) for one in patterns)
    assert expected == [Naming(gpus=named).gpu(names) for names in (BIG, SMALL)]
    assert expected == [Naming(parts=named).part(iter(names)) for names in (BIG, SMALL)]
    assert "default" == Naming(named).part(BIG, "default")


def test_names_of_a_file_have_the_domain_of_the_vendor_unless_they_have_one() -> None:
    text = """
gpus: [{pattern: "*XL", name: xl}, {pattern: " * ", name: other.org/lamp}]
slices: [{pattern: 1g, name: example.com/xl}]"""
    found = read(text)
    assert (Named("*XL", "example.com/xl"), Named("*", "other.org/lamp")) == found.gpus
    assert (Named("1g", "example.com/xl"),) == found.parts
    assert ["example.com/xl", "other.org/lamp"] == found.resources
    assert found == read(str(KIND.write(found)))
    assert Naming() == read("{}")


DOMAIN, NAME = "the domain must be", "the name after the slash"
NAMES = {
    "/": DOMAIN,
    "/xl": DOMAIN,
    "a b": NAME,
    "a/b/c": NAME,
    "EXAMPLE.com/xl": DOMAIN,
    "kubernetes.io/xl": "kubernetes.io/ and requests. are",
    "a" * 64: NAME,
}
WRONG = "is not the name of a resource, such as gpu or example.com/gpu: "


@pytest.mark.parametrize(
    ("text", "why"),
    [
        *(
            (f"gpus:\n- pattern: '*'\n  name: '{name}'", f"gpus[0].name: '{name}' {WRONG}{why}")
            for name, why in NAMES.items()
        ),
        ("gpus:\n- pattern: '*'", "gpus[0]: name is missing"),
        ("gpus:\n- name: a", "gpus[0]: pattern is missing"),
        ("gpus:\n- name: a\n  pattern: ' '", "gpus[0].pattern: "),
        # kubectl makes 57891 of it.
        ("gpus:\n- name: a\n  pattern: 0xE223", "gpus[0].pattern: 0xE223 is not a string: put it"),
        ("mig: []", "mig: unknown key"),
    ],
)
def test_a_mistake_is_one_error_with_its_place(text: str, why: str) -> None:
    with pytest.raises(dp.ConfigError, match=rf"^config.yaml: (line \d: )?{re.escape(why)}.*$"):
        read(text)


def test_a_pattern_that_names_nothing_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    gpus = Named("*", "all"), Named("*XL", "xl"), Named("*X1*", "x1")
    given, unused = Naming(gpus, (Named("2g", "b"),)), UnusedNames()
    hidden, nothing = "earlier ones match what it matches", "nothing here matches it"
    both, x1 = [BIG, SMALL], [BIG, ("Lamp X1",)]
    steps: list[tuple[Sequence[Sequence[str]], Sequence[Sequence[str]], list[str]]] = [
        ([], [], []),
        (both, [], [f"pattern '*XL' for xl: {hidden}", f"pattern '*X1*' for x1: {nothing}"]),
        ([], [], []),
        (both, [], []),
        ([BIG], [("1g",)], [f"pattern '2g' for b: {nothing}"]),
        (x1, [("2g",)], [f"pattern '*X1*' for x1: {hidden}"]),
        (x1, [("2g",)], []),
    ]
    for found, parts, expected in steps:
        caplog.clear()
        unused.observe(given, iter(found), parts)
        assert expected == [getattr(one, "problem", "") for one in caplog.records]
