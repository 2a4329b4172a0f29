"""Classes of parameters, and objects of JSON that are read as them."""

from collections.abc import Sequence
from dataclasses import dataclass, field, make_dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal

import pytest

import deviceplugin as dp
from deviceplugin._config import parameters
from deviceplugin.kit import configuration


@dataclass(frozen=True)
class Tuning:
    mode: Literal["fast", "slow"] = "slow"
    idle_timeout: timedelta = timedelta(seconds=30)
    lanes: int = 4
    spare: bool = False
    names: Sequence[str] = ()
    root: Path | None = None
    labels: dict[str, str] = field(
        default_factory=dict, metadata={"kind": configuration.mapping_of(configuration.text())}
    )
    derived: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        if self.mode == "fast" and self.spare:
            raise ValueError("fast devices have no spare")


def faults(found: object, name: str = "parameters", **head: str) -> list[str]:
    with pytest.raises(dp.ConfigError) as info:
        parameters.read(Tuning, found, name, head)
    return str(info.value).splitlines()


def test_what_is_absent_has_its_default() -> None:
    parameters.check(Tuning)
    assert Tuning() == parameters.read(Tuning, {})
    assert Tuning() == parameters.read(Tuning, {"lanes": None, "labels": None, "root": None})


def test_all_kinds_of_settings_are_read_and_written_as_users_write_them() -> None:
    written = {
        "mode": "fast",
        "idleTimeout": "1m30s",
        "lanes": 8,
        "spare": False,
        "names": ["a", "b"],
        "root": "/srv",
        "labels": {"a": "b"},
    }
    found = parameters.read(Tuning, written)
    assert timedelta(seconds=90) == found.idle_timeout
    assert ("a", "b") == found.names
    assert {"a": "b"} == found.labels
    assert written == parameters.write(found)
    assert found == parameters.read(Tuning, parameters.write(found))
    assert Tuning() == parameters.read(Tuning, parameters.write(Tuning()))


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        ({"idle_timeout": "1s"}, "idle_timeout: unknown key: did you mean 'idleTimeout'?"),
        ({"derived": 1}, "derived: unknown key: known are"),
        ({"lanes": "many"}, "lanes: 'many' is not a whole number"),
        ({"lanes": True}, "lanes: true is not a whole number"),
        ({"mode": "fst"}, "mode: 'fst' is not one of fast, slow"),
        ({"names": 3}, "names: 3 is not a list"),
        ({"labels": {"a": 1}}, "labels.a: 1 is not a string"),
    ],
)
def test_a_wrong_value_is_named_by_its_key(found: Any, expected: str) -> None:
    (text,) = faults(found)
    assert text.startswith(f"parameters.{expected}")


def test_all_faults_are_reported_together() -> None:
    found = {"apiVersion": "v2", "lanes": "x", "mod": 1}
    assert [
        "parameters.mod: unknown key: did you mean 'mode'?",
        "parameters.apiVersion: 'v2' is not a/v1",
        "parameters: kind is missing: it must be Tuning",
        "parameters.lanes: 'x' is not a whole number",
    ] == faults(found, apiVersion="a/v1", kind="Tuning")
    assert ["parameters.kind: 1 is not K"] == faults({"kind": 1}, kind="K")
    assert Tuning() == parameters.read(Tuning, {"kind": "K"}, head={"kind": "K"})
    assert ["parameters: a list is not a mapping with keys"] == faults([])


def test_a_class_can_check_several_parameters_together() -> None:
    found = {"mode": "fast", "spare": True}
    assert ["parameters: fast devices have no spare"] == faults(found)
    assert ["fast devices have no spare"] == faults(found, "")


def frozen(name: str, **fields: Any) -> type:
    """Return a class whose fields have a type and a default."""
    return make_dataclass(name, [(key, *found) for key, found in fields.items()], frozen=True)


def fail(_self: object) -> None:
    raise KeyError("mode")


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("text", "'text' is not a dataclass"),
        (Path, "Path is not a dataclass: put @dataclass(frozen=True) over the class"),
        (make_dataclass("Changeable", ["mode"]), "Changeable can be changed"),
        (frozen("Needing", mode=[str]), "Needing: mode needs a default, for pods that give no"),
        (
            frozen("Odd", mode=(complex, 1j)),
            "Odd: mode cannot be a parameter, because of its type complex: known are str, int",
        ),
        (
            frozen("Taken", api_version=(str, "")),
            "Taken: api_version cannot be a parameter: apiVersion says which",
        ),
        (frozen("Twice", a_b=(str, ""), aB=(str, "")), "Twice: a_b and aB are both written aB"),
        (
            frozen("Unknown", mode=("Nowhere", None)),
            "Unknown: the type of a field is unknown: name 'Nowhere' is not defined",
        ),
        (
            make_dataclass("Broken", [], namespace={"__post_init__": fail}, frozen=True),
            "Broken: its defaults cannot be used: 'mode'",
        ),
    ],
)
def test_a_class_that_cannot_be_used_is_refused_in_words(kind: Any, expected: str) -> None:
    with pytest.raises(dp.ConfigError) as info:
        parameters.check(kind)
    assert str(info.value).startswith(expected)
