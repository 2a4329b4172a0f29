"""Objects with one fault each, which the API server or the operator refuses."""

from pathlib import Path
from typing import Any, Final, NamedTuple

import yaml

SHARED: Final = {"timeSlicing": {"resources": [{"name": "nvidia.com/gpu", "replicas": 4}]}}


class Bad(NamedTuple):
    """A spec with a fault."""

    fault: str
    spec: Any
    field: str
    """What any message about it has to name."""
    said: str
    """How the operator's message begins, or what is in it."""


def _bad(fault: str, field: str, said: str, plugin: str = "gpu", **spec: Any) -> Bad:
    return Bad(fault, {"plugin": plugin, **spec}, field, said)


_FEW: Final = Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8")
_TOO_LONG: Final = "is not a label's value: at most 63 letters"
_LONG: Final = f"{'a.' * 127}a/b"
_MANY: Final = "spec.{}: has {} entries, of at most {}"
BAD: Final = (
    *(Bad(fault, *rest) for fault, rest in yaml.safe_load(_FEW).items()),
    # Too much of something
    _bad("long value of a selector", "nodeSelector", _TOO_LONG, nodeSelector={"a": "c" * 64}),
    _bad(
        "a resource that is too long",
        "resource",
        "244 characters at most",
        "gopher",
        gopher={"resource": f"{'a' * 245}/b"},
    ),
    _bad("long image", "image", "is not an image", image="a" * 513),
    _bad(
        "many labels",
        "nodeSelector",
        _MANY.format("nodeSelector", 17, 16),
        nodeSelector={f"l{number}": "" for number in range(17)},
    ),
    _bad(
        "many profiles",
        "profiles",
        _MANY.format("profiles", 17, 16),
        profileLabel="l",
        profiles={f"p{number}": {} for number in range(17)},
    ),
    _bad(
        "many resources",
        "resources",
        _MANY.format("custom.resources", 65, 64),
        "custom",
        image="i",
        custom={"resources": ["a.b/c"] * 65},
    ),
    _bad(
        "a long domain of a label",
        "nodeSelector",
        ": is not the key of a label",
        nodeSelector={_LONG: "c"},
    ),
    _bad(
        "large settings",
        "config",
        "spec.custom: config: has 200004 bytes as a file, of at most 200000",
        "custom",
        image="i",
        custom={"config": {"a": "b" * 200_000}},
    ),
)
