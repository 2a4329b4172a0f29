"""What is wrong with a ResourceSlice: the limits of Kubernetes 1.36, in its words and its order."""

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from deviceplugin_testing.simulator._control_plane.kinds import Object
from deviceplugin_testing.simulator._control_plane.refusals import (
    FieldError,
    duplicate,
    forbidden,
    invalid,
    required,
    too_long,
    too_many,
    unsupported,
)
from deviceplugin_testing.simulator._control_plane.rules import names
from deviceplugin_testing.simulator._control_plane.rules.counters import (
    check_consumptions,
    check_sets,
)
from deviceplugin_testing.simulator._control_plane.rules.gates import LISTS
from deviceplugin_testing.simulator._control_plane.rules.shares import check_policy
from deviceplugin_testing.simulator._control_plane.selectors import VERSION

MOST_DEVICES: Final = 128
MOST_WITH_TAINTS: Final = 64
"""Most devices of a slice of which any has a taint or consumes a counter."""
_MOST_ATTRIBUTES: Final = 32
_MOST_VALUES: Final = 48
_MOST_TAINTS: Final = 16
_LONGEST_DRIVER: Final = 63
_LONGEST_POOL: Final = 253
_LONGEST_IDENTIFIER: Final = 32
_LONGEST_VALUE: Final = 64
_LONGEST_KEY: Final = _LONGEST_DRIVER + 1 + _LONGEST_IDENTIFIER
EFFECTS: Final = ("NoExecute", "NoSchedule", "None")
_NODES: Final = ("nodeName", "nodeSelector", "allNodes", "perDeviceNodeSelection")
_TEXTS: Final = ("strings", "versions")
_ONE_VALUE: Final = "exactly one value must be specified"
_GO_VALUES: Final = (
    ("IntValue", "int"), ("BoolValue", "bool"), ("StringValue", "string"),
    ("VersionValue", "version"), ("IntValues", "ints"), ("BoolValues", "bools"),
    ("StringValues", "strings"), ("VersionValues", "versions"),
)  # fmt: skip


def check_slice(new: Object, old: Object | None = None) -> Iterator[FieldError]:
    """Yield the errors of a slice, or of the change of ``old`` to it."""
    spec, before = new["spec"], old["spec"] if old else None
    yield from check_driver("spec.driver", spec["driver"])
    yield from _check_pool(spec["pool"])
    if before is not None:
        yield from _check_immutable(spec, before)
    yield from _check_nodes(spec)
    devices: list[Object] = spec.get("devices", [])
    if "devices" in spec and "sharedCounters" in spec:
        yield invalid("spec", "", "only one of `sharedCounters` or `devices` is allowed")
    advanced = any(_is_advanced(device) for device in devices)
    most = MOST_WITH_TAINTS if advanced else MOST_DEVICES
    if len(devices) > most:
        yield too_many("spec.devices", len(devices), most)
    else:
        yield from _check_devices(devices)
    yield from check_sets("spec.sharedCounters", spec.get("sharedCounters", ()))


def _check_devices(devices: list[Object]) -> Iterator[FieldError]:
    for index, device in enumerate(devices):
        yield from _check_device(f"spec.devices[{index}]", device)
    seen: set[str] = set()
    for index, device in enumerate(devices):
        if device["name"] in seen:
            yield duplicate(f"spec.devices[{index}]", device["name"])
        seen.add(device["name"])


def check_driver(field: str, driver: str) -> Iterator[FieldError]:
    """Yield the errors of a driver's name, or of the domain of an attribute. Capitals are fine."""
    if not driver:
        yield required(field)
        return
    if len(driver) > _LONGEST_DRIVER:
        yield too_long(field, _LONGEST_DRIVER)
    for problem in names.subdomain(driver.lower()):
        yield invalid(field, driver, problem)


def _check_pool(pool: Object) -> Iterator[FieldError]:
    name = pool["name"]
    if not name:
        yield required("spec.pool.name")
    else:
        if len(name) > _LONGEST_POOL:
            yield too_long("spec.pool.name", _LONGEST_POOL)
        for part in name.split("/"):
            for problem in names.subdomain(part):
                yield invalid("spec.pool.name", part, problem)
    if pool["resourceSliceCount"] <= 0:
        count = pool["resourceSliceCount"]
        yield invalid("spec.pool.resourceSliceCount", count, "must be greater than zero")
    if pool["generation"] < 0:
        problem = "must be greater than or equal to zero"
        yield invalid("spec.pool.generation", pool["generation"], problem)


def _check_immutable(spec: Object, before: Object) -> Iterator[FieldError]:
    changed = {
        "spec.pool.name": (spec["pool"]["name"], before["pool"]["name"]),
        "spec.driver": (spec["driver"], before["driver"]),
        "spec.nodeName": (spec.get("nodeName"), before.get("nodeName")),
    }
    for field, (new, old) in changed.items():
        if new != old:
            yield invalid(field, new, "field is immutable")


def _check_nodes(spec: Object) -> Iterator[FieldError]:
    name = spec.get("nodeName")
    if name == "":
        yield invalid("spec.nodeName", "", "must be either unset or set to a non-empty string")
    elif name is not None:
        yield from (invalid("spec.nodeName", name, problem) for problem in names.subdomain(name))
    for field in ("allNodes", "perDeviceNodeSelection"):
        if spec.get(field) is False:
            yield invalid(f"spec.{field}", False, "must be either unset or set to true")  # noqa: FBT003
    given = [f"`{field}`" for field in _NODES if spec.get(field)]
    rule = f"exactly one of {', '.join(f'`{field}`' for field in _NODES)} is required"
    if not given:
        yield required("spec", rule)
    elif len(given) > 1:
        shown = f"{{{', '.join(given)}}}"
        yield invalid("spec", shown, f"{rule}, but multiple fields are set")


def _is_advanced(device: Object) -> bool:
    has_lists = any(
        not one.keys().isdisjoint(LISTS) for one in device.get("attributes", {}).values()
    )
    return has_lists or bool(device.get("taints") or device.get("consumesCounters"))


def _check_device(place: str, device: Object) -> Iterator[FieldError]:
    yield from (
        invalid(f"{place}.name", device["name"], one) for one in names.label(device["name"])
    )
    attributes: Object = device.get("attributes", {})
    count = len(attributes) + len(device.get("capacity", {}))
    if count > _MOST_ATTRIBUTES:
        problem = "the total number of attributes and capacities must not exceed"
        yield invalid(place, count, f"{problem} {_MOST_ATTRIBUTES}")
    values = sum(sum(len(one.get(kind, ())) for kind in LISTS) or 1 for one in attributes.values())
    if values > _MOST_VALUES:
        problem = "the total number of attribute values must not exceed"
        yield invalid(place, values, f"{problem} {_MOST_VALUES}")
    yield from _check_map(f"{place}.attributes", attributes, _check_attribute)
    may_share = bool(device.get("allowMultipleAllocations"))
    check = _check_shared_capacity if may_share else _check_capacity
    yield from _check_map(f"{place}.capacity", device.get("capacity", {}), check)
    taints: list[Object] = device.get("taints", [])
    if len(taints) > _MOST_TAINTS:
        yield too_many(f"{place}.taints", len(taints), _MOST_TAINTS)
    else:
        for index, taint in enumerate(taints):
            yield from _check_taint(f"{place}.taints[{index}]", taint)
    yield from check_consumptions(f"{place}.consumesCounters", device.get("consumesCounters", ()))
    if any(field in device for field in ("nodeName", "nodeSelector", "allNodes")):
        fields = "`nodeName`, `nodeSelector` and `allNodes` can only be set if"
        rule = "`perDeviceNodeSelection` is set to true in the ResourceSlice spec"
        yield invalid(place, None, f"{fields} {rule}")
    yield from _check_conditions(place, device)


def _check_conditions(place: str, device: Object) -> Iterator[FieldError]:
    fields = ("bindingConditions", "bindingFailureConditions")
    for field, other in (fields, fields[::-1]):
        if other in device and field not in device:
            yield invalid(f"{place}.{field}", None, f"{field} are required to use {other}")


def _check_map(
    field: str, entries: Mapping[str, Object], check: Callable[[str, Object], Iterator[FieldError]]
) -> Iterator[FieldError]:
    """Yield the errors of attributes or capacities, sorted. The real server's order is random."""
    for name, entry in sorted(entries.items()):
        yield from check_name(field, name)
        yield from check(f"{field}[{_shortened(name)}]", entry)


def check_name(field: str, name: str) -> Iterator[FieldError]:
    """Yield the errors of the name of an attribute or a capacity."""
    *domains, own = name.split("/")
    if len(domains) > 1:
        return  # the server does not check these
    if domains == [""]:
        yield invalid(field, "", "the domain must not be empty")
    elif domains:
        yield from check_driver(field, domains[0])
    if domains and not own:
        yield invalid(field, "", "the name must not be empty")
        return
    if len(own) > _LONGEST_IDENTIFIER:
        yield too_long(field, _LONGEST_IDENTIFIER)
    yield from (invalid(field, own, problem) for problem in names.identifier(own))


def _check_attribute(place: str, attribute: Object) -> Iterator[FieldError]:
    for kind in ("string", "version"):
        if attribute.get(kind) is not None:
            yield from _check_text(f"{place}.{kind}", kind, attribute[kind])
    for kind in LISTS:
        if attribute.get(kind) == []:
            yield invalid(f"{place}.{kind}", [], "must not be empty if specified")
        for index, one in enumerate(attribute.get(kind, ()) if kind in _TEXTS else ()):
            yield from _check_text(f"{place}.{kind}[{index}]", kind, one)
    if not attribute:
        yield invalid(place, "", _ONE_VALUE)
    elif len(attribute) > 1:
        shown = {name: attribute.get(field) for name, field in _GO_VALUES}
        yield invalid(place, shown, _ONE_VALUE)


def _check_text(field: str, kind: str, text: str) -> Iterator[FieldError]:
    if kind.startswith("version") and VERSION.fullmatch(text) is None:
        yield invalid(field, text, "must be a string compatible with semver.org spec 2.0.0")
    if len(text.encode()) > _LONGEST_VALUE:
        yield too_long(field, _LONGEST_VALUE)


def _check_capacity(place: str, capacity: Object) -> Iterator[FieldError]:
    if "requestPolicy" in capacity:
        yield forbidden(f"{place}.requestPolicy", "allowMultipleAllocations must be true")


def _check_shared_capacity(place: str, capacity: Object) -> Iterator[FieldError]:
    yield from check_policy(f"{place}.requestPolicy", capacity)


def _check_taint(place: str, taint: Object) -> Iterator[FieldError]:
    for problem in names.qualified(taint["key"]):
        yield invalid(f"{place}.key", taint["key"], problem)
    for problem in names.value(taint.get("value", "")):
        yield invalid(f"{place}.value", taint["value"], problem)
    yield from check_effect(f"{place}.effect", taint["effect"])


def check_effect(field: str, effect: str) -> Iterator[FieldError]:
    """Yield the error of the effect of a taint, if there is one."""
    if not effect:
        yield required(field)
    elif effect not in EFFECTS:
        yield unsupported(field, effect, EFFECTS)


def _shortened(name: str) -> str:
    if len(name) <= _LONGEST_KEY:
        return name
    rest = _LONGEST_KEY - len("...")
    return f"{name[: (rest + 1) // 2]}...{name[-(rest // 2) :]}"
