"""How much of its capacities a claim consumes of a shared device, as the scheduler computes it."""

from collections import Counter
from collections.abc import Iterable, Mapping
from fractions import Fraction
from math import ceil
from typing import Any, Final

from deviceplugin_testing.simulator._control_plane.kinds import Object
from deviceplugin_testing.simulator._control_plane.quantities import amount

Amounts = Mapping[str, str]
"""Quantities by the name of a capacity."""
_KILO: Final = 1024
_BINARY: Final = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")


def consumed(device: Object, asked: Amounts, used: Mapping[str, Fraction]) -> Amounts | None:
    """Return what a request that asks for ``asked`` consumes of ``device``; None if it cannot.

    Args:
        device: The device, shared or not, as in its slice.
        asked: Quantities by the name of a capacity.
        used: What others consume.
    """
    capacities: Mapping[str, Any] = device.get("capacity", {})
    if not asked.keys() <= capacities.keys():
        return None
    found = {name: _consumed(one, asked.get(name)) for name, one in capacities.items()}
    for name, taken in found.items():
        if _violates(taken, capacities[name].get("requestPolicy", {})):
            return None
        if amount(taken) + used.get(name, 0) > amount(capacities[name]["value"]):
            return None
    return found


def total(several: Iterable[Amounts]) -> Mapping[str, Fraction]:
    """Return the sum of what several requests consume."""
    found: Counter[str] = Counter()
    for one in several:
        for name, taken in one.items():
            found[name] += amount(taken)  # type: ignore[assignment]  # a fraction counts too
    return found  # type: ignore[return-value]


def _consumed(capacity: Object, asked: str | None) -> str:
    policy: Mapping[str, Any] = capacity.get("requestPolicy", {})
    if asked is None:
        return str(policy.get("default") or capacity["value"])
    between = policy.get("validRange", {})
    if "min" in between:
        return _in_range(asked, between)
    larger = (one for one in policy.get("validValues", ()) if amount(asked) <= amount(one))
    return next(larger, asked)


def _in_range(asked: str, between: Mapping[str, str]) -> str:
    """Return the next quantity in a range."""
    if amount(asked) < amount(between["min"]):
        return between["min"]
    if "step" not in between:
        return asked
    least, step = ceil(amount(between["min"])), ceil(amount(between["step"]))
    return _binary(least + step * -(-(ceil(amount(asked)) - least) // step))


def _violates(taken: str, policy: Mapping[str, Any]) -> bool:
    default = policy.get("default")
    if default is not None and amount(taken) == amount(default):
        return False
    if between := policy.get("validRange"):
        if "max" in between and amount(taken) > amount(between["max"]):
            return True
        least, step = ceil(amount(between["min"])), ceil(amount(between.get("step", "1")))
        return bool("step" in between and (ceil(amount(taken)) - least) % step)
    values = policy.get("validValues", ())
    return bool(values) and amount(taken) not in map(amount, values)


def _binary(number: int) -> str:
    power = 0
    while number and not number % _KILO:
        number, power = number // _KILO, power + 1
    return f"{number}{_BINARY[power]}"
