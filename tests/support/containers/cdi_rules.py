"""What container runtimes take as a CDI specification, as far as we write any of it.

After the schema and the parser of the container device interface, which both refuse fields that
they do not know, and versions that are older than what is used.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

_FIELDS: Final = {
    "document": {"cdiVersion", "kind", "annotations", "devices", "containerEdits"},
    "device": {"name", "annotations", "containerEdits"},
    "edits": {"env", "deviceNodes", "mounts", "hooks", "additionalGids", "intelRdt"},
    "mount": {"hostPath", "containerPath", "options", "type"},
    "hook": {"hookName", "path", "args", "env", "timeout"},
    "node": {"path", "hostPath", "type", "major", "minor", "fileMode", "permissions", "uid", "gid"},
}
_HOOKS: Final = {
    *("prestart", "createRuntime", "createContainer", "startContainer"),
    *("poststart", "poststop"),
}
_QUALIFIER: Final = re.compile(r"[A-Za-z]([A-Za-z0-9_.-]*[A-Za-z0-9])?")
_DEVICE: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.:-]*[A-Za-z0-9])?")


def faults(document: Mapping[str, Any]) -> Iterator[str]:
    """Say why a runtime would refuse ``document``."""
    yield from _unknown("document", document)
    vendor, _, name = document["kind"].partition("/")
    if not _QUALIFIER.fullmatch(vendor) or not _QUALIFIER.fullmatch(name) or len(name) > 63:
        yield f"kind {document['kind']}"
    names = [device["name"] for device in document["devices"]]
    if not names or len(names) != len({*names}):
        yield f"devices {names}"
    for device in document["devices"]:
        yield from _unknown("device", device)
        if not _DEVICE.fullmatch(device["name"]):
            yield f"name {device['name']}"
        if not any(device["containerEdits"].values()):
            yield f"{device['name']} edits nothing"
    for edits in _all_edits(document):
        yield from _edit_faults(edits)
    if document["cdiVersion"] != _needed(document):
        yield f"version {document['cdiVersion']}, not {_needed(document)}"


def _all_edits(document: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    edits = [device["containerEdits"] for device in document["devices"]]
    return [*edits, document["containerEdits"]] if "containerEdits" in document else edits


def _edit_faults(edits: Mapping[str, Any]) -> Iterator[str]:
    yield from _unknown("edits", edits)
    yield from (f"env {one}" for one in edits.get("env", ()) if "=" not in one)
    for node in edits.get("deviceNodes", ()):
        yield from _unknown("node", node)
        if not node["path"] or not {*node["permissions"]} <= {*"rwm"}:
            yield f"node {node}"
    for mount in edits.get("mounts", ()):
        yield from _unknown("mount", mount)
        if not mount["hostPath"] or not mount["containerPath"]:
            yield f"mount {mount}"
    for hook in edits.get("hooks", ()):
        yield from _unknown("hook", hook)
        if hook["hookName"] not in _HOOKS or not hook["path"]:
            yield f"hook {hook}"


def _needed(document: Mapping[str, Any]) -> str:
    """Return the version that has what is used, of what we use."""
    nodes = [node for edits in _all_edits(document) for node in edits.get("deviceNodes", ())]
    if "." in document["kind"].split("/")[1]:
        return "0.6.0"
    if any(device["name"][0] in "0123456789" for device in document["devices"]):
        return "0.5.0"
    return "0.5.0" if any("hostPath" in node for node in nodes) else "0.3.0"


def _unknown(what: str, value: Mapping[str, Any]) -> Iterator[str]:
    return (f"unknown {what} {field}" for field in value.keys() - _FIELDS[what])
