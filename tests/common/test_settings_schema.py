"""The schema of a settings class says of each field what its file may have."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal, Self

import deviceplugin as dp
from deviceplugin.kit.configuration import boolean, record, schema, settings_schema


class Shape:
    @classmethod
    def parse(cls, value: object) -> Self:
        raise NotImplementedError


class Colour(Shape):
    @staticmethod
    def schema() -> Mapping[str, Any]:
        return {"enum": ["red"]}


@dataclass(frozen=True, kw_only=True)
class Lamp(dp.Settings):
    place: str
    """Where it
    hangs."""
    watts: int = 1
    warmth: float = 1.0
    on: bool = False
    switch: Path = Path("/dev/null")
    fuse: Path | None = None
    patience: timedelta = timedelta(seconds=1)
    mode: Literal["dim", "bright"] = "dim"
    rooms: tuple[str, ...] = ()
    colour: Colour = field(default_factory=Colour)
    shape: Shape = field(default_factory=Shape)
    bulb: dict[str, bool] = field(
        default_factory=dict, metadata={"kind": record(dict, {"clear": boolean()})}
    )


PATH = {"type": "string", "pattern": r"^/[^\x00]*$"}
DURATION = {"type": "string", "pattern": r"^([0-9]+(\.[0-9]+)?(ms|s|m|h|d))+$"}


def test_a_field_is_described_by_its_type() -> None:
    found = schema(settings_schema(Lamp), "Lamp")["properties"]
    expected = {
        "place": {"type": "string", "description": "Where it hangs."},
        "watts": {"type": "integer"},
        "warmth": {"type": "number"},
        "on": {"type": "boolean"},
        "switch": PATH,
        "fuse": {"anyOf": [PATH, {"type": "null"}]},
        "patience": DURATION,
        "mode": {"type": "string", "enum": ["dim", "bright"]},
        "rooms": {"type": "array", "items": {"type": "string"}},
        "colour": {"enum": ["red"]},
        "shape": {},
        "bulb": {
            "type": "object",
            "properties": {"clear": {"type": "boolean"}},
            "additionalProperties": False,
        },
    }
    assert expected == {key: found[key] for key in expected}


def test_the_keys_are_those_of_a_file_with_all_settings() -> None:
    found = settings_schema(Lamp)
    assert {"log-level", "plugin-dir", "bulb"} <= found["properties"].keys()
    assert (False, "object") == (found["additionalProperties"], found["type"])
