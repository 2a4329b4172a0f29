"""What is wrong with the request policies of devices that several claims share."""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from math import ceil
from typing import Any, Final

from deviceplugin_testing.simulator._control_plane.kinds import Object
from deviceplugin_testing.simulator._control_plane.quantities import amount
from deviceplugin_testing.simulator._control_plane.refusals import (
    FieldError,
    duplicate,
    forbidden,
    invalid,
    required,
    too_many,
)

_MOST_VALUES: Final = 10


def check_policy(place: str, capacity: Object) -> Iterator[FieldError]:
    """Yield the errors of the policy of ``capacity``, if it has one; ``place`` is its field."""
    policy: Object = capacity.get("requestPolicy", {})
    values: list[str] = policy.get("validValues", [])
    between: Object | None = policy.get("validRange")
    default: str | None = policy.get("default")
    if values and between is not None:
        rule = 'cannot specify "validValues" and "validRange" at the same time'
        yield forbidden(place, f"exactly one policy can be specified, {rule}")
    elif (values or between is not None) and default is None:
        name = "validValues" if values else "validRange"
        yield required(f"{place}.default", f"required when {name} is defined")
    elif default is not None and values:
        yield from _check_values(f"{place}.validValues", capacity["value"], default, values)
    elif default is not None and between is not None:
        yield from _check_range(f"{place}.validRange", capacity["value"], default, between)


def _check_values(
    place: str, most: str, default: str, values: Sequence[str]
) -> Iterator[FieldError]:
    for index, (one, other) in enumerate(pairwise(values), 1):
        if amount(one) > amount(other):
            yield invalid(f"{place}[{index}]", other, "values must be sorted in ascending order")
    is_too_long = len(values) > _MOST_VALUES
    if is_too_long:
        yield too_many(place, len(values), _MOST_VALUES)
    else:
        yield from _check_options(place, most, values)
    if is_too_long or amount(default) not in map(amount, values):
        problem = "default value is not valid according to the requestPolicy"
        yield invalid(place, default, problem)


def _check_options(place: str, most: str, values: Sequence[str]) -> Iterator[FieldError]:
    for index, one in enumerate(values):
        if amount(one) > amount(most):
            problem = f"option is larger than capacity value: {most}"
            yield invalid(f"{place}[{index}]", one, problem)
    whole = [ceil(amount(one)) for one in values]
    for index, number in enumerate(whole):
        if number in whole[:index]:
            yield duplicate(f"{place}[{index}]", str(number))


def _check_range(place: str, most: str, default: str, between: Object) -> Iterator[FieldError]:
    least = between.get("min")
    if least is None:
        yield required(f"{place}.min", "required when validRange is defined")
        return
    if amount(least) > amount(most):
        yield invalid(f"{place}.min", least, f"min is larger than capacity value: {most}")
    if amount(default) < amount(least):
        yield invalid(f"{place}.min", default, f"default is less than min: {least}")
    if "max" in between:
        yield from _check_largest(f"{place}.max", most, default, between)
    if "step" in between:
        yield from _check_step(f"{place}.step", most, default, between)


def _check_largest(place: str, most: str, default: str, between: Object) -> Iterator[FieldError]:
    least, largest = between["min"], between["max"]
    if amount(least) > amount(largest):
        yield invalid(place, least, f"min is larger than max: {largest}")
    if amount(largest) > amount(most):
        yield invalid(place, largest, f"max is larger than capacity value: {most}")
    if amount(default) > amount(largest):
        yield invalid(place, default, f"default is more than max: {largest}")


def _check_step(place: str, most: str, default: str, between: Any) -> Iterator[FieldError]:
    least, step = between["min"], between["step"]
    added = amount(least) + amount(step)
    if added > amount(most):
        shown = added if added.denominator == 1 else float(added)
        yield invalid(place, step, f"one step {shown} is larger than capacity value: {most}")
    for value in filter(None, (default, between.get("max"))):
        if (ceil(amount(value)) - ceil(amount(least))) % ceil(amount(step)):
            problem = f"value is not a multiple of a given step ({step}) from ({least})"
            yield invalid(place, value, problem)
