"""What is wrong with claims, their templates and device classes, in the API server's words."""

from collections.abc import Iterator
from typing import Any, Final

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
from deviceplugin_testing.simulator._control_plane.rules.device_status import check_devices
from deviceplugin_testing.simulator._control_plane.rules.slices import (
    check_driver,
    check_effect,
    check_name,
)
from deviceplugin_testing.simulator._control_plane.selectors import parse_selector

EXACT_COUNT: Final = "ExactCount"
_MODES: Final = ("All", EXACT_COUNT)
_OPERATORS: Final = ("Equal", "Exists")
_LONGEST_EXPRESSION: Final = 10 * 1024
_MOST_REQUESTS: Final = 32
_MOST_CONSTRAINTS: Final = 32
_MOST_PODS: Final = 256
_UNION: Final = "exactly one of `exactly` or `firstAvailable` is required"
_IMMUTABLE: Final = "field is immutable"
_ONE_RULE: Final = 'exactly one of "matchAttribute" or "distinctAttribute" is required'
_NO_DOMAIN: Final = "a fully qualified name must be a domain and a name separated by a slash"


def add_defaults(spec: Object) -> None:
    spec["devices"].setdefault("requests", None)
    for request in requests_of(spec):
        for one in [*([request["exactly"]] if "exactly" in request else ()),
                    *request.get("firstAvailable", ())]:  # fmt: skip
            if one.setdefault("allocationMode", EXACT_COUNT) == EXACT_COUNT:
                one["count"] = one.get("count") or 1


def requests_of(spec: Object) -> list[Object]:
    return spec["devices"].get("requests") or []


def check_claim(new: Object, old: Object | None = None) -> Iterator[FieldError]:
    """Yield the errors of a claim or a template, or of the change of ``old`` to it."""
    spec = new["spec"]
    if old is not None:
        if spec != old["spec"]:
            yield invalid("spec", spec, _IMMUTABLE)
    elif "spec" in spec:
        yield from _check_spec("spec.spec", spec["spec"])
    else:
        yield from _check_spec("spec", spec)


def check_status(new: Object, old: Object) -> Iterator[FieldError]:
    """Yield the errors of the change of a claim's status."""
    status, before = new["status"], old.get("status", {})
    allocation, reserved = status.get("allocation"), status.get("reservedFor", [])
    if len(reserved) > _MOST_PODS:
        yield too_many("status.reservedFor", len(reserved), _MOST_PODS)
    uids: set[str] = set()
    for index, one in enumerate(reserved):
        if one["uid"] in uids:
            yield duplicate(f"status.reservedFor[{index}]", one["uid"])
        uids.add(one["uid"])
    if reserved and not allocation:
        yield forbidden("status.reservedFor", "may not be specified when `allocated` is not set")
    if allocation and before.get("allocation") not in (None, allocation):
        yield invalid("status.allocation", allocation, _IMMUTABLE)
    yield from check_devices(status)


def check_methods(new: Object, old: Object | None = None) -> Iterator[FieldError]:
    """Yield the errors of selectors with the method of DRAListTypeAttributes, which is off."""
    if old is None or old["spec"] != new["spec"]:
        for field, expression in _expressions("spec", new["spec"]):
            if ".includes(" in expression:
                problem = "undeclared reference to 'includes' (in container '')"
                yield invalid(field, expression, f"compilation failed: ERROR: {problem}")


def _expressions(place: str, made: Any) -> Iterator[tuple[str, str]]:
    if isinstance(made, list):
        for index, one in enumerate(made):
            yield from _expressions(f"{place}[{index}]", one)
    elif isinstance(made, dict):
        if "cel" in made:
            yield f"{place}.cel.expression", made["cel"]["expression"]
        for name in made.keys() - {"cel", "opaque"}:
            yield from _expressions(f"{place}.{name}", made[name])


def check_class(new: Object, old: Object | None = None) -> Iterator[FieldError]:
    del old
    spec = new["spec"]
    yield from _check_selectors("spec", spec.get("selectors", []))
    for index, config in enumerate(spec.get("config", [])):
        yield from _check_opaque(f"spec.config[{index}]", config)
    extended = spec.get("extendedResourceName")
    if extended is not None and not names.is_extended_resource(extended):
        yield invalid(
            "spec.extendedResourceName", extended, "must be a valid extended resource name"
        )


def _check_spec(place: str, spec: Object) -> Iterator[FieldError]:
    devices = spec["devices"]
    place = f"{place}.devices"
    requests = requests_of(spec)
    if len(requests) > _MOST_REQUESTS:
        yield too_many(f"{place}.requests", len(requests), _MOST_REQUESTS)
        return
    for index, request in enumerate(requests):
        yield from _check_request(f"{place}.requests[{index}]", request)
    seen: set[str] = set()
    for index, request in enumerate(requests):
        if request["name"] in seen:
            yield duplicate(f"{place}.requests[{index}]", request["name"])
        seen.add(request["name"])
    known = set(_request_names(requests))
    yield from _check_constraints(f"{place}.constraints", devices.get("constraints", []), known)
    for index, config in enumerate(devices.get("config", [])):
        yield from _check_config(f"{place}.config[{index}]", config, known)


def _check_constraints(
    place: str, constraints: list[Object], known: set[str]
) -> Iterator[FieldError]:
    if len(constraints) > _MOST_CONSTRAINTS:
        yield too_many(place, len(constraints), _MOST_CONSTRAINTS)
        return
    for index, one in enumerate(constraints):
        at = f"{place}[{index}]"
        yield from _check_names(f"{at}.requests", one.get("requests", []), known)
        rule = next((name for name in ("matchAttribute", "distinctAttribute") if name in one), None)
        if rule is None:
            yield required(at, f"{_ONE_RULE}, but multiple fields are set")
            continue
        yield from check_name(f"{at}.{rule}", one[rule])
        if "/" not in one[rule]:
            yield invalid(f"{at}.{rule}", one[rule], _NO_DOMAIN)


def _request_names(requests: list[Object]) -> Iterator[str]:
    for request in requests:
        yield request["name"]
        for sub in request.get("firstAvailable", ()):
            yield f"{request['name']}/{sub['name']}"


def _check_request(place: str, request: Object) -> Iterator[FieldError]:
    name = request["name"]
    yield from (invalid(f"{place}.name", name, one) for one in names.label(name))
    subs = request.get("firstAvailable", [])
    if subs and "exactly" in request:
        yield invalid(place, None, f"{_UNION}, but multiple fields are set")
    elif subs:
        for index, sub in enumerate(subs):
            at = f"{place}.firstAvailable[{index}]"
            yield from (invalid(f"{at}.name", sub["name"], one) for one in names.label(sub["name"]))
            yield from _check_wanted(at, sub)
    elif "exactly" in request:
        yield from _check_wanted(f"{place}.exactly", request["exactly"])
    else:
        yield required(place, _UNION)


def _check_wanted(place: str, wanted: Object) -> Iterator[FieldError]:
    name = wanted["deviceClassName"]
    if not name:
        yield required(f"{place}.deviceClassName")
    else:
        for problem in names.subdomain(name):
            yield invalid(f"{place}.deviceClassName", name, problem)
    yield from _check_selectors(place, wanted.get("selectors", []))
    mode, count = wanted["allocationMode"], wanted.get("count", 0)
    if mode not in _MODES:
        yield unsupported(f"{place}.allocationMode", mode, _MODES)
    elif mode == EXACT_COUNT and count <= 0:
        yield invalid(f"{place}.count", count, "must be greater than zero")
    elif mode != EXACT_COUNT and count:
        problem = f"must not be specified when allocationMode is '{mode}'"
        yield invalid(f"{place}.count", count, problem)
    for index, toleration in enumerate(wanted.get("tolerations", [])):
        yield from _check_toleration(f"{place}.tolerations[{index}]", toleration)


def _check_toleration(place: str, toleration: Object) -> Iterator[FieldError]:
    key, operator, value = (toleration.get(name, "") for name in ("key", "operator", "value"))
    if key:
        yield from (invalid(f"{place}.key", key, one) for one in names.qualified(key))
    if operator not in _OPERATORS:
        yield unsupported(f"{place}.operator", operator, _OPERATORS)
    elif operator == "Exists" and value:
        yield invalid(f"{place}.value", value, "must be empty for operator `Exists`")
    elif operator == "Equal":
        yield from (invalid(f"{place}.value", value, one) for one in names.value(value))
    if toleration.get("effect"):
        yield from check_effect(f"{place}.effect", toleration["effect"])


def _check_selectors(place: str, selectors: list[Object]) -> Iterator[FieldError]:
    for index, selector in enumerate(selectors):
        at = f"{place}.selectors[{index}].cel"
        if "cel" not in selector:
            yield required(at)
            continue
        expression = selector["cel"]["expression"]
        if len(expression.encode(errors="replace")) > _LONGEST_EXPRESSION:
            yield too_long(f"{at}.expression", _LONGEST_EXPRESSION)
            continue
        try:
            parse_selector(expression)
        except ValueError as error:
            yield invalid(f"{at}.expression", expression, str(error))


def _check_config(place: str, config: Object, known: set[str]) -> Iterator[FieldError]:
    yield from _check_names(f"{place}.requests", config.get("requests", []), known)
    yield from _check_opaque(place, config)


def _check_names(place: str, requests: list[str], known: set[str]) -> Iterator[FieldError]:
    for index, request in enumerate(requests):
        if request not in known:
            rule = "must be the name of a request in the claim or the name of a request and a "
            yield invalid(f"{place}[{index}]", request, f"{rule}subrequest separated by '/'")


def _check_opaque(place: str, config: Object) -> Iterator[FieldError]:
    opaque: Any = config.get("opaque")
    if opaque is None:
        yield required(f"{place}.opaque")
        return
    yield from check_driver(f"{place}.opaque.driver", opaque["driver"])
    if "parameters" not in opaque:
        yield required(f"{place}.opaque.parameters")
    elif not isinstance(opaque["parameters"], dict):
        problem = "must be a valid JSON object"
        yield invalid(f"{place}.opaque.parameters", "<value omitted>", problem)
