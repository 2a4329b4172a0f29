"""What ``deviceplugin migrate`` knows of simple-device-plugin."""

from typing import Final

from deviceplugin.kit.configuration import Place, of_text
from deviceplugin.kit.migration import Migration, Workload, checked, flags

_NAME: Final = "simple-device-plugin"
_IMAGES: Final = frozenset({_NAME, "device-plugin"})
_FILE: Final = "device_plugin_config.yaml"
_KEYS: Final = {
    "resourceName": "resource",
    "numberDevicesOnNode": "number-devices",
    "pluginName": "plugin-name",
    "deviceIDPrefix": "device-id-prefix",
    "annotationPrefix": "annotation-prefix",
    "envPrefix": "env-prefix",
    "deviceFilePrefix": "device-file-prefix",
}
"""Its keys, and ours."""


def migrate(workload: Workload) -> Migration | None:
    """Return what becomes of simple-device-plugin; None for anything else."""
    named = any(one.endswith(_FILE) for one in (*workload.arguments, *workload.files))
    if workload.values is not None or not (named or workload.name == _NAME):
        return None
    workload.drop_variable("NODE_NAME", "NODE_NAME: ours is the name of the node")
    path = next((one.value for name, one in flags(workload, ["config"]) if name == "config"), _FILE)
    file = workload.file(f"/{path.lstrip('/')}", f"its configuration {path}")
    given = checked(of_text(str(file.value), file.place), _read)
    configuration = {_KEYS[key]: value for key, value in given.items() if value != ""}
    uses_ids = given.get("envPrefix") or given.get("deviceFilePrefix")
    result = Migration(
        peer=_NAME,
        plugin="simulated",
        configuration={**configuration, **({"value-form": "id"} if uses_ids else {})},
        differences=[
            "kubelet restart: ours registers again; theirs never does",
            "invalid values: ours exits with status 2, and names file, key and value",
        ],
    )
    if uses_ids:
        result.differs(
            "value-form",
            "id, because their program uses device ids in variables and device nodes; their "
            "documentation says indices, which is ours without this key",
        )
    return result


def _read(root: Place) -> dict[str, str | int]:
    places = root.keys(_KEYS)
    return {
        key: _number(place) if key == "numberDevicesOnNode" else _text(place, key)
        for key, place in places.items()
    }


def _text(place: Place, key: str) -> str:
    if place.kind not in {"text", "nothing"}:
        place.wrong("a string")
    elif place.raw == _PLACEHOLDERS.get(key):
        place.fault(f"{place.raw} is the template's: put the value in its place")
    return "" if place.kind == "nothing" else place.raw


def _number(place: Place) -> int:
    if place.kind == "integer" and place.raw.isdigit():
        return int(place.raw)
    place.wrong("a number of devices")
    return 0


_PLACEHOLDERS: Final = {
    "resourceName": "RESOURCE_NAME",
    "pluginName": "PLUGIN_NAME",
    "deviceIDPrefix": "DEVICE_ID_PREFIX",
    "annotationPrefix": "ANNOTATION_PREFIX",
    "envPrefix": "ENV_PREFIX",
    "deviceFilePrefix": "DEVICE_FILE_PREFIX",
}
