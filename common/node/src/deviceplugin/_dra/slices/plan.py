"""What has to be written so that the API server has the slices that a driver offers."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from typing import Any, Final, Literal, NamedTuple

from deviceplugin._dra.naming import slice_name
from deviceplugin._dra.slices.counters import Body
from deviceplugin._dra.slices.pools import Pool, Site, SliceDevice
from deviceplugin._dra.slices.store import Object

PER_SLICE: Final = 64
"""Devices in a slice: what the API server accepts of devices that may have taints."""
_SPARE: Final = 1
"""Slices more than are needed before the devices are laid out anew."""
CONTENT: Final = "dra.deviceplugin.dev/content"
"""The annotation with the hash of what was sent. The API server writes quantities in its own way
and drops fields that it does not know, so its answer cannot be compared with what was sent."""
_DIGITS: Final = 32
_MOST: Final = 0x2000
"""More slices than a pool can have, for more devices than a plugin can."""
SETS_PER_SLICE: Final = 8
_SETS: Final = 0xC000
"""The first slice with sets of counters, of which there are at most as many as of devices."""
_KEPT: Final = ("labels", "finalizers")


def lay_out(
    names: Sequence[str], have: Mapping[int, Sequence[str]], count: int, size: int = PER_SLICE
) -> list[list[str]]:
    """Return the names of the devices of each slice, ``size`` in one, in the order of ``names``.

    A device stays in its slice, so a change of one device is a change of one slice. Others fill
    slices that are missing, and then those with room. There is always one slice at least. ``have``
    has the devices of each slice that exists, by its index; there should be ``count`` slices now.
    """
    needed = max(1, -(-len(names) // size))
    most = max([min(count, needed + _SPARE), *(index + 1 for index in have)])
    slots: list[list[str]] = [[] for _ in range(most)]
    others = dict.fromkeys(names)
    for index in sorted(have):
        for name in have[index]:
            if name in others and len(slots[index]) < size:
                slots[index].append(name)
                del others[name]
    if len(others) == len(names) or len(slots) > needed + _SPARE:
        return [list(names[size * i : size * (i + 1)]) for i in range(needed)]
    rest = list(others)
    for index in sorted(range(len(slots)), key=lambda index: index in have):
        room = size - len(slots[index])
        slots[index] += rest[:room]
        del rest[:room]
    slots += [rest[i : i + size] for i in range(0, len(rest), size)]
    while not slots[-1] and len(slots) > needed and len(slots) - 1 not in have:
        slots.pop()  # `count` was not true
    place = {name: position for position, name in enumerate(names)}
    return [sorted(slot, key=place.__getitem__) for slot in slots]


Action = Literal["create", "replace", "delete"]


class Write(NamedTuple):
    """A request to the API server."""

    action: Action
    name: str
    uid: str = ""
    """Of the slice that is to be deleted."""
    body: Object | None = None
    entries: Sequence[SliceDevice] = ()
    """The devices of ``body``, in its order."""


def plan(
    have: Iterable[Object],
    want: Iterable[Pool],
    site: Site,
    intact: Callable[[Object], bool] = lambda _one: True,
) -> list[Write]:
    """Return what to write, in order; nothing if the slices are right and ``intact``.

    A changed device is one request, for its slice, and so are changed counters: they have slices of
    their own. Slices of a pool get a new generation, all of them, only if their number changes or a
    device moves to another slice. Until then consumers could see a device twice or not at all, and
    with it they wait until they see all slices. A pool without devices has an empty slice: the
    driver is up and has none.
    """
    by_pool: dict[str, list[Object]] = {}
    for one in have:
        by_pool.setdefault(one["spec"]["pool"]["name"], []).append(one)
    writes = [
        write for pool in want for write in _plan(by_pool.pop(pool.name, []), pool, site, intact)
    ]
    return writes + [_delete(one) for others in by_pool.values() for one in others]


def _plan(
    have: Iterable[Object], pool: Pool, site: Site, intact: Callable[[Object], bool]
) -> Iterator[Write]:
    have = sorted(have, key=_generation, reverse=True)
    present = {one["metadata"]["name"]: one for one in have}
    indices = _indices(present, pool.name, site)
    slots = {index: _names_in(present[name]) for name, index in indices.items()}
    count = have[0]["spec"]["pool"]["resourceSliceCount"] if have else 0
    entries = {entry.name: entry for entry in pool.entries}
    sets = {one["name"]: one for one in pool.counters}
    layout = _layout(list(entries), list(sets), slots, count)
    same = bool(have) and len(layout) == count and not _moves(layout, slots)
    same = same and len(indices) == len(have)
    generation = max(map(_generation, have), default=0) + (not same)
    times = _times(have)
    for index, names in layout.items():
        name = slice_name(site.driver, site.node, pool.name, index)
        chosen = [entries[device] for device in names] if index < _SETS else []
        counters = [sets[one] for one in names] if index >= _SETS else []
        body = _slice(name, pool.name, chosen, counters, site)
        body["spec"]["pool"] |= {"generation": generation, "resourceSliceCount": len(layout)}
        old = present.pop(name, None)
        if old is None:
            yield Write("create", name, body=_with_times(body, times), entries=chosen)
        elif not (intact(old) and _same(old, body)):
            yield Write("replace", name, body=_over(old, _with_times(body, times)), entries=chosen)
    yield from map(_delete, present.values())


def _layout(
    entries: Sequence[str], sets: Sequence[str], slots: Mapping[int, Sequence[str]], count: int
) -> dict[int, list[str]]:
    """Return the names in each slice by its index, of devices and then of sets of counters."""
    of_devices = {index: names for index, names in slots.items() if index < _SETS}
    of_sets = {index - _SETS: names for index, names in slots.items() if index >= _SETS}
    devices = lay_out(entries, of_devices, count - len(of_sets))
    counters = lay_out(sets, of_sets, len(of_sets), SETS_PER_SLICE) if sets else []
    return dict(enumerate(devices)) | {_SETS + i: names for i, names in enumerate(counters)}


def _indices(names: Iterable[str], pool: str, site: Site) -> dict[str, int]:
    """Return the index of each slice that is named as ours are."""
    found = {}
    for name in names:
        try:
            index = int(name.rpartition("-")[2], 16)
        except ValueError:
            continue
        known = index < _MOST or _SETS <= index < _SETS + _MOST
        if known and name == slice_name(site.driver, site.node, pool, index):
            found[name] = index
    return found


def _moves(layout: Mapping[int, Sequence[str]], slots: Mapping[int, Sequence[str]]) -> bool:
    """Return whether a device, or a set of counters, would be in another slice than now."""
    now: dict[tuple[bool, str], set[int]] = {}
    for index, names in slots.items():
        for name in names:
            now.setdefault((index < _SETS, name), set()).add(index)
    return any(
        now.get((index < _SETS, name), {index}) != {index}
        for index, names in layout.items()
        for name in names
    )


def _slice(
    name: str, pool: str, entries: Sequence[SliceDevice], counters: Sequence[Body], site: Site
) -> Object:
    devices = [dict(entry.body) for entry in entries]
    things: Object = {"sharedCounters": list(counters)} if counters else {"devices": devices}
    owners = [dict(site.owner)] if site.owner else []
    # Devices stand there by themselves, as before there were counters.
    said = things if counters else devices
    content = json.dumps([pool, site.driver, site.node, owners, said], sort_keys=True)
    annotations = {CONTENT: sha256(content.encode()).hexdigest()[:_DIGITS]}
    metadata: Object = {"name": name, "annotations": annotations}
    spec = {"driver": site.driver, "nodeName": site.node, "pool": {"name": pool}}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": metadata | ({"ownerReferences": owners} if owners else {}),
        "spec": {**spec, **things},
    }


def _same(old: Object, new: Object) -> bool:
    """Return whether ``old`` is what ``new`` became when it was sent, by the hash.

    Somebody may have edited the slice while nobody watched, so what matters most is compared too.
    """
    content = new["metadata"]["annotations"][CONTENT]
    return (
        old["metadata"].get("annotations", {}).get(CONTENT) == content
        and old["spec"]["pool"] == new["spec"]["pool"]
        and [*map(_outline, _devices(old))] == [*map(_outline, _devices(new))]
        and _names_in(old) == _names_in(new)
    )


def _outline(device: Object) -> tuple[str, list[tuple[Any, ...]]]:
    return device["name"], [_taint(taint) for taint in device.get("taints", ())]


def _over(old: Object, new: Object) -> Object:
    """Return ``new`` in place of ``old``, with what others may have added to its metadata."""
    metadata = old["metadata"]
    kept = {field: metadata[field] for field in _KEPT if field in metadata}
    annotations = {**metadata.get("annotations", {}), **new["metadata"]["annotations"]}
    version = {"resourceVersion": metadata["resourceVersion"], "uid": metadata["uid"]}
    return {**new, "metadata": {**kept, **new["metadata"], "annotations": annotations, **version}}


def _times(have: Iterable[Object]) -> dict[tuple[Any, ...], str]:
    """Return since when devices have had their taints."""
    return {
        (device["name"], taint["key"], taint["effect"]): taint["timeAdded"]
        for one in have
        for device in _devices(one)
        for taint in device.get("taints", ())
        if "timeAdded" in taint
    }


def _with_times(body: Object, times: Mapping[tuple[Any, ...], str]) -> Object:
    """Add the times to the taints: without them, claims would tolerate these for longer.

    Another cause of the same taint, which is its value, does not begin a new time either.
    """
    for device in _devices(body):
        if "taints" in device:
            device["taints"] = [
                {**taint, "timeAdded": since}
                if (since := times.get((device["name"], taint["key"], taint["effect"])))
                else taint
                for taint in device["taints"]
            ]
    return body


def _taint(taint: Mapping[str, Any]) -> tuple[Any, ...]:
    return taint["key"], taint.get("value", ""), taint["effect"]


def _delete(one: Object) -> Write:
    return Write("delete", one["metadata"]["name"], one["metadata"]["uid"])


def _devices(one: Object) -> list[Object]:
    found: list[Object] = one["spec"].get("devices") or []
    return found


def device_names_in(one: Object) -> list[str]:
    return [device["name"] for device in _devices(one)]


def _names_in(one: Object) -> list[str]:
    return device_names_in(one) or [
        each["name"] for each in one["spec"].get("sharedCounters") or ()
    ]


def _generation(one: Object) -> int:
    return int(one["spec"]["pool"].get("generation", 0))
