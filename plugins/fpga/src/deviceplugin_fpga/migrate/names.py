"""The names of Intel's admission webhook, which become names of ours."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from deviceplugin.kit.migration import Migration, Setting, Workload
from deviceplugin_fpga.resource_names import alias_name, canonical

FIELDS: Final = {
    "AcceleratorFunction": ("interfaceId", "afuId", "mode"),
    "FpgaRegion": ("interfaceId",),
}
"""The kinds of objects, and the fields of their specifications."""
_IDS: Final = {"interfaceId": "interface", "afuId": "function"}
"""Their fields, and ours."""
_OF_REGIONS: Final = "regiondevel"
"""The mode of the plugin in which an FpgaRegion is used."""
_MODES: Final = {"AcceleratorFunction": ("af", "region"), "FpgaRegion": (_OF_REGIONS,)}
_WAYS: Final[Mapping[str, tuple[str, str]]] = {
    "fpga-aliases": (
        "aliases",
        "by the component fpga-aliases; a device has no other name then, so drain a node before",
    ),
    "fpga-names": (
        "names",
        "by the component fpga-names, for Kubernetes 1.36; make each FpgaName with kubectl create",
    ),
}
"""Our components for names, and what is said of them."""


def note_without_plugin(workload: Workload) -> None:
    """Note why an object of the webhook is not taken over if no plugin is in the input."""
    objects = workload.account.objects
    if workload.kind in FIELDS and not [*objects("FpgaDevicePlugin"), *objects("DaemonSet")]:
        workload.account.drop(
            workload.root,
            "is a name for what Intel's FPGA plugin has: give that too, its DaemonSet or "
            "FpgaDevicePlugin",
        )


def add_names(workload: Workload, mode: str, result: Migration) -> None:
    """Make the names of the input's objects names of ours, and account for the objects.

    Raises:
        ConfigError: A field of an object is missing, or is not a string.
    """
    found: list[dict[str, str]] = []
    unused: dict[str, list[str]] = {}
    for one in _objects(workload):
        try:
            entry = _entry(one, mode)
            found += [entry] if _is_new(entry, found, is_alias=mode != "region") else []
        except ValueError as error:
            one.account.take(one.root)
            unused.setdefault(str(error), []).append(_text(one, "metadata", "name"))
    for why, names in unused.items():
        result.differs(f"names {', '.join(names)}", f"not taken over: {why}")
    if found:
        _add(found, mode, result)
        result.differs("names", "for all namespaces; theirs are for that of their object")
    elif not unused:
        result.differs(
            "admission webhook",
            "none here; for its names, give its objects too: kubectl get "
            "acceleratorfunctions,fpgaregions --all-namespaces --output yaml",
        )


def _objects(workload: Workload) -> Iterator[Workload]:
    for kind in FIELDS:
        for path, place in workload.account.objects(kind):
            values = workload.account.get(path)
            yield replace(workload, place=place, values=values, kind=kind, root=path)


def _entry(one: Workload, mode: str) -> dict[str, str]:
    """Return an alias; raise ``ValueError`` with the reason why an object is not one."""
    name = _text(one, "metadata", "name")
    fields = {field: _text(one, "spec", field) for field in FIELDS[one.kind]}
    one.key("status")
    theirs = fields.pop("mode", _OF_REGIONS)
    if theirs not in _MODES[one.kind]:
        raise ValueError(f"their mode {theirs!r} is not one of {', '.join(_MODES[one.kind])}")
    if theirs != mode:
        raise ValueError(f"they are of the mode {theirs}, and the plugin's is {mode}")
    ids = {_IDS[field]: _checked(canonical, value) for field, value in fields.items()}
    return {"name": _checked(alias_name, name), **ids}


def _text(one: Workload, *path: str) -> str:
    given = one.key(*path) or Setting(f"{one.place}: {'.'.join(path)}", None)
    if not isinstance(given.value, str):
        raise given.wrong("a string: put it in quotes")
    return given.value


def _checked(check: Callable[[str], str], text: str) -> str:
    try:
        return check(text)
    except ValueError as error:
        raise ValueError(f"{text!r} {error}") from error


def _is_new(
    entry: Mapping[str, str], found: Sequence[Mapping[str, str]], *, is_alias: bool
) -> bool:
    """Return whether no other is the same; raise ``ValueError`` if one is in its way."""
    for other in found:
        is_same = {**other, "name": entry["name"]} == entry
        if other["name"] == entry["name"] and not is_same:
            raise ValueError("the name is of something else in another namespace")
        # Several functions of a region are several names, but of aliases a device has one.
        if other["name"] != entry["name"] and is_same and is_alias:
            raise ValueError(f"its device is called {other['name']} already: change its pods")
    return entry not in found


def _add(found: Sequence[Mapping[str, str]], mode: str, result: Migration) -> None:
    component = "fpga-names" if mode == "region" else "fpga-aliases"
    result.components.append(component)
    result.differs(*_WAYS[component])
    if component == "fpga-names":
        result.differences += [f"FpgaName: {_json(_fpga_name(one))}" for one in found]
        return
    lines = "".join(f"- {json.dumps(one)}\n" for one in found)
    result.config_maps["aliases"] = {"aliases.yaml": f"aliases:\n{lines}"}


def _fpga_name(entry: Mapping[str, str]) -> dict[str, Any]:
    spec = {"resource": f"region-{entry['interface']}", "function": entry["function"]}
    return {
        "apiVersion": "deviceplugin.dev/v1alpha1",
        "kind": "FpgaName",
        "metadata": {"name": entry["name"]},
        "spec": spec,
    }


def _json(value: Any) -> str:
    """Return a line without spaces, which is not wrapped."""
    return json.dumps(value, separators=(",", ":"))
