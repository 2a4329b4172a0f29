"""What the groups of an entry match on this node, without health."""

import os
import posixpath
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import deviceplugin as dp
from deviceplugin.kit import usb, vdpa, vfio
from deviceplugin.kit.hardware import Device
from deviceplugin_generic.configuration import globs, go_expressions
from deviceplugin_generic.configuration.entries import Group, PathSpec, Rule, Selector, UsbSpec
from deviceplugin_generic.discovery.selecting import is_selected
from deviceplugin_generic.discovery.tree import VFIO, VFIO_DEVICES, Tree, misplaced


@dataclass(frozen=True, slots=True)
class Match:
    """One device, before it is divided into shares."""

    nodes: tuple[dp.DeviceNode, ...] = ()
    mounts: tuple[dp.Mount, ...] = ()
    paths: tuple[str, ...] = ()
    """Host paths in the order of the configuration. Ids by path are computed from them."""
    own: tuple[str, ...] = ()
    """The pieces of hardware that no other match should be: all but what is meant for several."""
    device: Device | None = None
    """The device in sysfs."""
    in_sysfs: bool = False
    """Whether it was found in sysfs, so that its node need not be visible."""
    behind: str = ""
    """The nodes behind the device that it has, if not the device's own."""
    parts: "tuple[Match, ...]" = ()
    """The matches that it combines, if several."""
    problem: str = ""
    """Why a container could not use it, as sysfs says; empty if it could."""
    abilities: tuple[str, ...] = ()
    """What its nodes can do, if its group asks."""


def of_group(group: Group, tree: Tree) -> list[Match]:
    """Return the matches of a group, in a stable order."""
    if group.paths:
        return _of_paths(group.paths, tree)
    if group.usb:
        found = [device for spec in group.usb for device in _usb(spec, tree)]
    else:
        found = _selected(group.select, group, tree) if group.select else []
    matches = [match for device in found for match in _of_device(device, group, tree)]
    if group.per_match or group.nodes or group.select:
        matches = _without_repeated(matches)
    if group.per_match or not matches:
        return matches
    # A USB device that two specs match counts twice in the id, as in generic-device-plugin.
    return [
        Match(
            nodes=tuple(dict.fromkeys(node for match in matches for node in match.nodes)),
            paths=tuple(path for match in matches for path in match.paths),
            own=tuple(dict.fromkeys(piece for match in matches for piece in match.own)),
            device=matches[0].device,
            in_sysfs=True,
            parts=tuple({match.paths: match for match in matches}.values()),
            problem="; ".join(match.problem for match in matches if match.problem),
        )
    ]


def _without_repeated(matches: list[Match]) -> list[Match]:
    """Return the matches without those that another one stands for.

    Each device of an IOMMU group finds the group. The first of them represents it, or the first
    that a container could use.
    """
    found: dict[object, Match] = {}
    for match in matches:
        key = match.paths or match.device
        if key not in found or (found[key].problem and not match.problem):
            found[key] = match
    return [*found.values()]


def _of_paths(specs: tuple[PathSpec, ...], tree: Tree) -> list[Match]:
    """Zip the matches of all paths. The README says how many devices result."""
    hits = [(spec, _able(spec, globs.glob(spec.path, tree.names), tree)) for spec in specs]
    if any(not found and not spec.optional for spec, found in hits):
        return []
    present = [(spec, found) for spec, found in hits if found]
    if not present:
        return []
    longest = max(len(found) for _, found in present)
    number = min(longest, *(len(found) * spec.limit for spec, found in present))
    return [
        _zipped([(spec, found[index % len(found)]) for spec, found in present], str(tree.roots.dev))
        for index in range(number)
    ]


def _able(spec: PathSpec, found: Sequence[str], tree: Tree) -> Sequence[str]:
    """Return the paths whose devices can do what a path asks for, or might."""
    if not spec.abilities:
        return found
    return [
        path for path in found if tree.can(tree.of_node(path), spec.abilities, path) is not False
    ]


def _zipped(pairs: list[tuple[PathSpec, str]], dev: str) -> Match:
    followed = [path for spec, path in pairs if not spec.is_mount or globs.is_magic(spec.path)]
    return Match(
        nodes=tuple(
            dp.DeviceNode(path, _inside(spec.mount_path, path), spec.permissions)
            for spec, path in pairs
            if not spec.is_mount
        ),
        mounts=tuple(
            dp.Mount(path, _inside(spec.mount_path, path), read_only=spec.read_only)
            for spec, path in pairs
            if spec.is_mount
        ),
        paths=tuple(path for _, path in pairs),
        own=tuple(
            f"mount of {path}" if spec.is_mount else path for spec, path in pairs if spec.limit == 1
        ),
        parts=tuple(_zipped([pair], dev) for pair in pairs) if len(pairs) > 1 else (),
        problem=_misplaced(followed, dev),
    )


def _misplaced(paths: Iterable[str], dev: str) -> str:
    return "; ".join(filter(None, (misplaced(path, dev) for path in paths)))


def _inside(mount_path: str, path: str) -> str:
    return mount_path + posixpath.basename(path) if mount_path.endswith("/") else mount_path


def _usb(spec: UsbSpec, tree: Tree) -> list[Device]:
    """Return the USB devices of a kind, by their numbers on the bus."""
    found = [
        device
        for device in tree.units.all
        if (spec.vendor, spec.product) == (device.number(0), device.number(1))
        and spec.serial in {"", device.attribute("serial")}
        and usb.bus_node(device, tree.dev)
    ]
    return sorted(found, key=lambda device: usb.bus_node(device, tree.dev))


def _selected(selector: Selector, group: Group, tree: Tree) -> list[Device]:
    return [
        device
        for device in tree.subsystem(selector.subsystem)
        if (device.subsystem != "usb" or device.nearest("usb") is device)  # not an interface
        and (device.node or group.nodes or not group.asks_abilities)
        and is_selected(device, selector, tree)
    ]


def _of_device(device: Device, group: Group, tree: Tree) -> Iterator[Match]:
    """Yield the device itself, or the devices of the wanted subsystems behind it."""
    unit = vfio.of(device) if _is_for_vfio(device, group) else None
    if VFIO in group.nodes:
        if unit:
            match = _of_nodes((*unit.nodes, *unit.also), group, device, tree)
            # What can come and go must not change ids.
            yield replace(match, paths=(*unit.nodes,), problem="; ".join(unit.problems))
        return
    if group.nodes:
        paths = _behind(device, group, tree)
    else:
        paths = [device.node or _other_node(device, tree)]
    if any(paths):
        problem = "; ".join(unit.conflicts) if unit else ""
        yield replace(_of_nodes(paths, group, device, tree), problem=problem)


def _is_for_vfio(device: Device, group: Group) -> bool:
    names = (one if isinstance(one, str) else one.subsystem for one in group.nodes)
    return not {VFIO, VFIO_DEVICES}.isdisjoint({device.subsystem, *names})


def _other_node(device: Device, tree: Tree) -> str:
    return usb.bus_node(device, tree.dev) if device.subsystem == "usb" else vdpa.node(device)


def _behind(device: Device, group: Group, tree: Tree) -> list[str]:
    """Return the paths of all wanted nodes of a device. A container gets them together."""
    wanted = [Selector(one) if isinstance(one, str) else one for one in group.nodes]
    names = tuple(one.subsystem for one in wanted)
    paths = [
        found.node
        for found in device.behind(*names)
        if any(one.subsystem == found.subsystem and is_selected(found, one, tree) for one in wanted)
    ]
    if "usb" in names and not device.node and (path := _other_node(device, tree)):
        paths.insert(0, path)
    return paths


def _of_nodes(paths: Iterable[str], group: Group, device: Device, tree: Tree) -> Match:
    paths = tuple(paths)
    nodes = tuple(
        dp.DeviceNode(
            path,
            _inside(group.mount_path, path) or f"/dev/{posixpath.relpath(path, tree.roots.dev)}",
            group.permissions,
        )
        for path in paths
    )
    shared = tuple(dp.DeviceNode(path, permissions=group.permissions) for path in group.shared)
    behind = "+".join(map(_said, group.nodes))
    own = (*paths, *_further_pieces(device, group))
    return Match((*nodes, *shared), (), paths, own, device, in_sysfs=True, behind=behind)


def _further_pieces(device: Device, group: Group) -> list[str]:
    """Return what else than its paths a device is: a USB device is also the terminal behind it.

    VFIO has two nodes for one PCI function, and gives a whole group to one holder.
    """
    if device.subsystem == "usb":
        return [one.node for one in device.behind()]
    unit = vfio.of(device) if _is_for_vfio(device, group) else None
    return unit.pieces if unit else []


def _said(wanted: str | Selector) -> str:
    """Return what distinguishes the nodes of one group from those of another."""
    if isinstance(wanted, str):
        return wanted
    left_out = (f"!{one.name}{'+'.join(one.abilities)}" for one in wanted.excluded)
    return ":".join(filter(None, (wanted.subsystem, wanted.name, *wanted.abilities, *left_out)))


def of_rule(rule: Rule, tree: Tree) -> Iterator[tuple[str, Match]]:
    """Yield the name and the match of each path below /dev that matches a rule of smarter's."""
    regex = go_expressions.compiled(rule.pattern)
    root = str(tree.roots.dev)
    for folder, below, files in _walk(root):
        for name in sorted((*below, *files)):
            path = posixpath.join(folder, name)
            inside = posixpath.relpath(path, root)
            if not regex.search(inside):
                continue
            own = _files_below(path) if name in below else [path]
            nodes = tuple(dp.DeviceNode(one, f"/dev/{one[len(root) + 1 :]}") for one in own)
            match = Match(nodes=nodes, paths=(path,), problem=_misplaced(own, root))
            yield re.sub(r"[^A-Za-z0-9_-]", "_", inside), match


def _files_below(path: str) -> list[str]:
    return sorted(posixpath.join(base, name) for base, _, names in _walk(path) for name in names)


def _walk(path: str) -> Iterator[tuple[str, list[str], list[str]]]:
    """Walk below a directory, but for what runtimes pass over."""
    for base, below, files in os.walk(path):
        below[:] = [name for name in below if name not in globs.PASSED_OVER]
        yield base, below, files
