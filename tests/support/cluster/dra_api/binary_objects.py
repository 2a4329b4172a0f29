"""Objects in Kubernetes' binary format, as the real API server wrote them, beside the same in JSON.

Together they set every field that the simulated API server reads. To record them anew, what is in
the file in JSON is sent; a new field is written there first.
"""

import base64
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from cluster.dra_api.asking import CLAIMS, CLASSES, SLICES, TEMPLATES, Asker, Object, Step

MEDIA: Final = "application/vnd.kubernetes.protobuf"
_FILE: Final = Path(__file__).with_name("binary_objects.json")
_PATHS: Final[Mapping[str, str]] = {
    "ResourceSlice": SLICES,
    "ResourceClaim": CLAIMS,
    "ResourceClaimTemplate": TEMPLATES,
    "DeviceClass": CLASSES,
}
_GIVEN: Final = ("name", "labels", "annotations", "finalizers", "ownerReferences")
"""What a client says of the metadata; the server sets the rest."""


class Pair(NamedTuple):
    """An object as the real server gave it, in both formats."""

    binary: bytes
    json: Object

    @property
    def path(self) -> str:
        """Where objects of its kind are created."""
        return _PATHS[self.json["kind"]]

    @property
    def wanted(self) -> Object:
        """What creates it; the status is written apart."""
        metadata = {name: self.json["metadata"][name] for name in _GIVEN}
        return {name: self.json[name] for name in ("apiVersion", "kind", "spec")} | {
            "metadata": metadata
        }


def recorded() -> dict[str, Pair]:
    """Return what the real API server wrote, by the name of each object."""
    found: dict[str, list[Any]] = json.loads(_FILE.read_text(encoding="utf-8"))
    return {name: Pair(base64.b64decode(one[0]), one[1]) for name, one in found.items()}


def record(real: Asker) -> None:
    """Create all objects at the real server, and write the file."""
    lines = []
    for name, (binary, plain) in asked(real).items():
        pair = [base64.b64encode(binary).decode(), plain]
        lines.append(f"{json.dumps(name)}: {json.dumps(pair, ensure_ascii=False, sort_keys=True)}")
    _FILE.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


def asked(real: Asker) -> dict[str, Pair]:
    """Create all objects at the real server, and return what it then has."""
    found = {}
    for name, pair in recorded().items():
        code, made = real.ask(Step("POST", pair.path, _as_go_writes(pair.wanted)))
        assert code == 201, made
        place = f"{pair.path}/{name}"
        try:
            if "status" in pair.json:
                changed = _as_go_writes({**made, "status": pair.json["status"]})
                code, made = real.ask(Step("PUT", f"{place}/status", changed))
                assert code == 200, made
            del made["metadata"]["managedFields"]
            found[name] = Pair(real.read(place, MEDIA), made)
        finally:
            real.remove(place)
    return found


def _as_go_writes(content: Object) -> bytes:
    """Return it as Go writes JSON: otherwise an opaque configuration counts as changed by Go."""
    return json.dumps(content, sort_keys=True, separators=(",", ":")).encode()
