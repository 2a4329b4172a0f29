"""Names that the API server accepts, for devices and whatever else is in slices; shares of devices.

Slices have a shared device under one name, and Kubernetes counts its shares.

Each is computed from one id or name alone, so it is the same after a restart and on every version
of this program. What is valid stays as it is. Anything else is changed as little as possible and
ends in a hash of what it was, so that two ids never get one name. A valid name that ends as if it
had such a hash gets one too.

Ids of devices can be chosen by whoever makes a device, so their hashes have 12 digits, as in
``gpu-1c2d--5f3a9b7e``. Earlier releases had the last 8 of them. Claims have such former names. No
former name is the name of another device now, because two hyphens before a hash occur in none.
"""

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from typing import Any, Final, NamedTuple

from deviceplugin._config.names import DOMAIN, LABEL
from deviceplugin.model import Device

MAX_LABEL: Final = 63
_MAX_DOMAIN: Final = 63
_MAX_SUBDOMAIN: Final = 253
MAX_IDENTIFIER: Final = 32
_HASH: Final = 8
"""Hexadecimal digits of a hash."""
_LABEL: Final = re.compile(LABEL)
_SUBDOMAIN: Final = re.compile(DOMAIN)
_IDENTIFIER: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_MORE: Final = 4
"""Further digits for devices."""
_HASHED: Final = re.compile(rf"(.*[-_])?[0-9a-f]{{{_HASH}}}", re.DOTALL)
"""What looks as if it ended in a hash."""
_LONG_HASHED: Final = re.compile(rf"(.*-)?[0-9a-f]{{{_MORE}}}--[0-9a-f]{{{_HASH}}}", re.DOTALL)
_NOT_IN_LABEL: Final = re.compile(r"[^a-z0-9]+")
_NOT_IN_IDENTIFIER: Final = re.compile(r"[^A-Za-z0-9_]")

Amount = Mapping[str, Any]
"""A capacity of a device in a slice, as JSON."""


def device_name(device_id: str) -> str:
    """Return the name in slices of the device ``device_id``, a DNS label."""
    former = former_name(device_id)
    if former == device_id:
        return device_id
    base = former[:-_HASH].rstrip("-")[: MAX_LABEL - _HASH - _MORE - 3].rstrip("-")
    digits = _digits(device_id)
    more = f"{digits[_HASH : _HASH + _MORE]}--{digits[:_HASH]}"
    return f"{base}-{more}" if base else more


def former_name(device_id: str) -> str:
    """Return the name of the device in earlier releases, which claims may have."""
    return label(device_id)


def is_former(name: str) -> bool:
    """Return whether ``name`` is one that devices had in earlier releases, and have no more."""
    return bool(_HASHED.fullmatch(name)) and not _LONG_HASHED.fullmatch(name)


def device_names(ids: Iterable[str], name: Callable[[str], str] = device_name) -> dict[str, str]:
    """Return the ids by the names of their devices. Two ids with one name are both absent."""
    named = {device_id: name(device_id) for device_id in ids}
    uses = Counter(named.values())
    return {name: device_id for device_id, name in named.items() if uses[name] == 1}


def shortened(name: str, longest: int) -> str:
    """Return ``name``, or if it is longer, as much of it as leaves room for a hash, and that."""
    return name if len(name) <= longest else f"{name[: longest - _HASH - 1]}-{_hash(name)}"


def pool_name(node: str, resource: str) -> str:
    """Return the name of the pool with the devices of ``resource`` on ``node``."""
    domain, _, last = resource.partition("/")
    name = f"{node}/{domain}/{_subdomain(last)}"
    if len(name) > _MAX_SUBDOMAIN:
        name = f"{node}/{_hash(resource)}"
    return name if len(name) <= _MAX_SUBDOMAIN else f"{_hash(node)}/{_hash(resource)}"


def slice_name(driver: str, node: str, pool: str, index: int) -> str:
    """Return the name of a slice of ``pool``, which sorts by ``index`` among those of the pool.

    The scheduler takes devices of the first slices first. Each name belongs to one driver, node,
    pool and index, so creating a slice twice cannot make two.
    """
    end = f"-{_hash(driver, node, pool)}-{index:04x}"
    return f"{node}-{driver}"[: _MAX_SUBDOMAIN - len(end)].rstrip("-.") + end


def attribute_names(
    given: Iterable[str], driver: str, taken: Collection[str] = ()
) -> dict[str, str]:
    """Return the names in slices of the attributes, or capacities, ``given`` for a device.

    A name can have a domain, as in ``resource.kubernetes.io/pciBusID``; without one it belongs to
    ``driver``. Of names that become the same, only one that was valid keeps it; the others, and
    those that become one in ``taken``, get a hash.
    """
    wishes = {name: _attribute(name, driver) for name in given}
    uses = Counter(wishes.values())
    return {
        name: wish
        if wish not in taken and (uses[wish] == 1 or wish == name)
        else _hashed(_as_identifier(name), name, "_", MAX_IDENTIFIER)
        for name, wish in wishes.items()
    }


def _attribute(name: str, driver: str) -> str:
    domain, slash, last = name.partition("/")
    fits = len(last) <= MAX_IDENTIFIER and len(domain) <= _MAX_DOMAIN
    if slash and fits and _IDENTIFIER.fullmatch(last) and _SUBDOMAIN.fullmatch(domain):
        return last if domain == driver else name
    return _identifier(name)


def _identifier(name: str) -> str:
    found = _as_identifier(name)
    if len(found) > MAX_IDENTIFIER or _HASHED.fullmatch(found):
        return _hashed(found, name, "_", MAX_IDENTIFIER)
    return found


def _as_identifier(name: str) -> str:
    found = _NOT_IN_IDENTIFIER.sub("_", name)
    return found if _IDENTIFIER.fullmatch(found) else f"_{found}"


def label(text: str, longest: int = MAX_LABEL) -> str:
    """Return a DNS label for ``text``, which stands in a configuration."""
    if len(text) <= longest and _LABEL.fullmatch(text) and not _HASHED.fullmatch(text):
        return text
    return _hashed(_NOT_IN_LABEL.sub("-", text.lower()).strip("-"), text, "-", longest)


def _subdomain(text: str) -> str:
    if _SUBDOMAIN.fullmatch(text) and not _HASHED.fullmatch(text):
        return text
    return label(text)


def _hashed(base: str, of: str, separator: str, longest: int) -> str:
    base = base[: longest - _HASH - 1].rstrip(separator)
    return f"{base}{separator}{_hash(of)}" if base or separator == "_" else _hash(of)


def _hash(*texts: str) -> str:
    return _digits(*texts)[:_HASH]


def _digits(*texts: str) -> str:
    return sha256("\0".join(texts).encode("utf-8", "surrogatepass")).hexdigest()


class PoolNames(NamedTuple):
    """What names stand for in the pool of a resource, whether its shares are counted or not."""

    devices: Mapping[str, str]
    """The ids of single devices, shares among them, by name."""
    shared: Mapping[str, Sequence[str]]
    """The ids of the shares of each shared device, by its name."""
    wholes: Mapping[str, str]
    """The id of each shared device, by its name."""

    def in_order(
        self, ids: Iterable[str], *, counted: bool
    ) -> Iterator[tuple[str, str, Sequence[str]]]:
        """Yield the devices of slices: name, id, and ids of shares if they are ``counted``."""
        shared = self.shared if counted else {}
        firsts = {found[0]: name for name, found in shared.items()}
        parts = {one for found in shared.values() for one in found}
        singles = {one: name for name, one in self.devices.items()}
        for one in ids:
            if name := firsts.get(one):
                yield name, self.wholes[name], shared[name]
            elif one not in parts and one in singles:
                yield singles[one], one, ()


def names_in(devices: Mapping[str, Device], name: Callable[[str], str] = device_name) -> PoolNames:
    """Return the names of ``devices``, and of those that they are shares of."""
    groups = shared(devices)
    named = device_names([*devices, *groups], name)
    return PoolNames(
        {name: one for name, one in named.items() if one not in groups},
        {name: groups[one] for name, one in named.items() if one in groups},
        {name: one for name, one in named.items() if one in groups},
    )


def shared(devices: Mapping[str, Device]) -> Mapping[str, Sequence[str]]:
    """Return the ids of the shares of each shared device, unless a device has the id of that."""
    groups: dict[str, list[str]] = {}
    for device_id, device in devices.items():
        if device.share_of and device.share_of not in devices:
            groups.setdefault(device.share_of, []).append(device_id)
    return groups


def counted(count: int) -> Amount:
    """Return the capacity of a device with ``count`` shares; a claim has one by default."""
    # The API server refuses a step to more than there are.
    size = {"max": "1"} if count == 1 else {"step": "1"}
    return {
        "value": str(count),
        "requestPolicy": {"default": "1", "validRange": {"min": "1", **size}},
    }


def uncounted(amount: Amount) -> Amount:
    """Return a capacity of a shared device of which claims consume only what they ask for."""
    # Without a default, the first claim would consume all of it.
    return {**amount, "requestPolicy": {"default": "0"}}
