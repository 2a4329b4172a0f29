"""What is known of a match beside its nodes, and where programs also look for these."""

import re
from collections import Counter
from dataclasses import replace
from typing import Final

import deviceplugin as dp
from deviceplugin.kit.hardware import Device
from deviceplugin_generic.configuration.entries import Group
from deviceplugin_generic.discovery.matching import Match
from deviceplugin_generic.discovery.tree import Tree

_DRI: Final = "/dev/dri"
_NAME: Final = re.compile(r"(card|render)D?\d+")
_PLACE: Final = re.compile(r"[\w.:@-]{1,200}", re.ASCII)
_BUSES: Final = ("acpi", "pci", "platform", "xen")


def with_facts(match: Match, group: Group, tree: Tree) -> Match:
    """Return a match with its device in sysfs, its abilities, and further names of DRM nodes.

    These are udev's link in ``/dev/dri/by-path``, whether the host has udev or not, and the
    kernel's name of a node that is given by such a link. A link that several nodes could have is
    that of none, because one container may get them all.
    """
    if match.device is None and match.nodes:
        match = replace(match, device=tree.of_node(match.nodes[0].host_path))
    if group.asks_abilities:
        asked = (*match.paths, match.device.name if match.device else "")  # one without a node
        able = {one for key in asked for one in tree.abilities.get(key, ())}
        match = replace(match, abilities=tuple(sorted(able)))
    own = {"", *(one.container_path for one in match.nodes)}
    further = _further_names(match, tree).items()
    more = (replace(one, container_path=path) for path, one in further if path not in own)
    return replace(match, nodes=(*match.nodes, *more))


def _further_names(match: Match, tree: Tree) -> dict[str, dp.DeviceNode]:
    nodes = [one for one in match.nodes if one.host_path.startswith(f"{tree.roots.dev}/dri/")]
    known = {one.node: one for one in tree.subsystem("drm") if one.node} if nodes else {}
    links = Counter(map(_link, known.values()))
    names: dict[str, dp.DeviceNode] = {}
    for node in nodes:
        device = tree.of_node(node.host_path) or known.get(node.host_path)
        if device and device.subsystem == "drm":
            if links[link := _link(device)] == 1:
                names[link] = node
            if node.container_path == node.host_path != device.node:
                names[f"{_DRI}/{device.name}"] = node
    return names


def _link(device: Device) -> str:
    """Return udev's link to a DRM node; empty for one that is not on PCI or a platform."""
    kind = _NAME.fullmatch(device.name)
    places: list[str] = []
    below = ""
    for one in device.line[1:]:
        if one.subsystem in _BUSES and one.subsystem != below:
            places.insert(0, f"{one.subsystem}-{one.name}")
        below = one.subsystem
    place = "-".join(places)
    is_there = kind and _PLACE.fullmatch(place) and not device.nearest("usb")
    return f"{_DRI}/by-path/{place}-{kind[1]}" if kind and is_there else ""
