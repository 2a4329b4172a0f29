"""Devices of entries: matches with their ids, health and allocation."""

import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Final

import deviceplugin as dp
from deviceplugin.kit import cdi, hardware, numa, sharing, usb, vfio
from deviceplugin.kit.configuration import bounded
from deviceplugin.kit.hardware import Device
from deviceplugin.kit.sysfs import shown
from deviceplugin.kit.usb import Stem
from deviceplugin_generic.configuration import globs, templates
from deviceplugin_generic.configuration.entries import (
    NODE_AS_MOUNT,
    Check,
    Entry,
    Group,
    Identity,
    Policy,
    Rule,
    identity_of,
)
from deviceplugin_generic.configuration.templates import POSITION, RESOURCE, fill, is_numbered, part
from deviceplugin_generic.discovery.beside import with_facts
from deviceplugin_generic.discovery.health import Checker
from deviceplugin_generic.discovery.matching import Match, of_group, of_rule
from deviceplugin_generic.discovery.properties import attributes, properties
from deviceplugin_generic.discovery.tree import VFIO, Tree

_LONGEST: Final = 63
_ODD: Final = re.compile(r"[^!-~]")

_CDI: Final = "cdi.k8s.io/"
"""How the names of annotations begin whose values are names of CDI devices."""


def path_id(share: int, paths: Sequence[str]) -> str:
    """Return the id that generic-device-plugin gives to a share of a device with these paths."""
    try:
        from _sha1 import sha1  # type: ignore[import-not-found] # hashlib loads OpenSSL
    except ImportError:  # a Python that has only OpenSSL's
        from hashlib import sha1

    text = f"{share}{''.join(paths)}"
    found: str = sha1(text.encode(errors="surrogateescape"), usedforsecurity=False).hexdigest()
    return found


def stems_of(match: Match, entry: Entry, identity: Identity, tree: Tree) -> list[Stem]:
    """Return what distinguishes a match from others: a stem for each of its parts."""
    found = [_stem_of(one, entry, identity, tree) for one in match.parts or (match,)]
    return list(dict.fromkeys(found))


def _stem_of(match: Match, entry: Entry, identity: Identity, tree: Tree) -> Stem:
    device = match.device
    if device is None and match.nodes:
        device = tree.of_node(match.paths[0])
    if device is None or (device.owner is device and not match.in_sysfs and not device.port):
        path = match.paths[0]
        return Stem(usb.escaped(path if _spans(entry) else posixpath.basename(path), "/"))
    is_part = match.behind and any(group.nodes != entry.groups[0].nodes for group in entry.groups)
    return usb.stem(
        device,
        tree.units,
        by_serial=identity == "serial",
        port=_first_in_group(device) if match.behind == VFIO else "",
        part=match.behind if is_part else "",
    )


def _first_in_group(device: Device) -> str:
    """Return the address of the first device in its IOMMU group, whatever its driver."""
    unit = vfio.of(device)
    return unit.members[0].port if unit else device.port


def _spans(entry: Entry) -> bool:
    """Return whether an entry can match paths in several directories, perhaps with one name."""
    paths = [posixpath.normpath(spec.path) for group in entry.groups for spec in group.paths]
    folders = {posixpath.dirname(path) for path in paths}
    return len(folders) > 1 or any(globs.is_magic(folder) for folder in folders)


def share_id(stem: str, share: int, count: int) -> str:
    """Return the id of a share: at most 63 readable characters."""
    text = _ODD.sub("_", sharing.share_id(stem, share) if count > 1 else stem)
    return text if len(text) <= _LONGEST else path_id(share, [stem])


def whole(stem: str, paths: Sequence[str]) -> str:
    """Return the name of the device that shares are of; ``stem`` is empty for ids of paths."""
    text = _ODD.sub("_", stem)
    return text if 0 < len(text) <= _LONGEST else path_id(0, [stem, *paths, "shares"])


@dataclass(frozen=True, slots=True)
class Share:
    """A device as the kubelet sees it, and the real device that it is a share of."""

    device: dp.Device
    origin: str
    policy: Policy = "spread"
    is_reserved: bool = False
    """Whether its entry is wrong: it is not offered, and others do not have it either."""
    check: Check = field(default_factory=Check)
    known: Mapping[str, str] = field(default_factory=dict)
    """The properties of the real device, for commands."""


def of_entry(
    entry: Entry, domain: str, tree: Tree, checker: Checker, ledger: usb.Ledger
) -> list[Share]:
    """Return the shares of all devices of an entry. ``ledger`` keeps their names.

    Raises:
        DiscoveryError: They are more than the kubelet takes.
    """
    found = [
        (group, with_facts(match, group, tree))
        for group in sorted(
            entry.groups, key=lambda group: bool(group.usb)
        )  # as in generic-device-plugin
        for match in of_group(group, tree)
    ]
    resource = f"{domain}/{entry.name}"
    for why in sharing.excess({resource: sum(group.count for group, _ in found)}).values():
        raise dp.DiscoveryError(why)
    names = iter(_names(entry, found, tree, ledger))
    shares: list[Share] = []
    for index, (group, match) in enumerate(found):
        some = _shares(entry, group, match, index, next(names), resource, checker)
        shares += [_with_usable_nodes(share, group, match, tree) for share in some]
    # Groups that match the same paths have the same ids. The last wins, as in that plugin.
    return [*{(share.device.id, share.origin): share for share in shares}.values()]


def _names(
    entry: Entry, found: list[tuple[Group, Match]], tree: Tree, ledger: usb.Ledger
) -> list[str]:
    """Return the prefix of each match's ids; empty if they are computed from its paths."""
    stems = [
        [] if identity == "path" else stems_of(match, entry, identity, tree)
        for group, match in found
        for identity in [identity_of(entry, group)]
    ]
    names = iter(ledger.names([stem for some in stems for stem in some]))
    texts = ["+".join(next(names) for _ in some) for some in stems]
    return [f"{entry.name}-{text}" if text else "" for text in texts]


def _shares(
    entry: Entry,
    group: Group,
    match: Match,
    index: int,
    stem: str,
    resource: str,
    checker: Checker,
) -> Iterator[Share]:
    known = properties(entry.name, index, match)
    key = f"{resource} {stem} {' '.join(match.paths)}"
    health = checker.health(key, match, entry.health, known)
    numbered = _is_numbered(entry, group)
    for share in range(group.count):
        device_id = share_id(stem, share, group.count) if stem else path_id(share, match.paths)
        values = {**known, "id": device_id, "share": str(share), "position": POSITION}
        named = {**values, "resource": RESOURCE}
        extra, unfit = _extra_mounts(entry, values)
        unfit = unfit or _cdi_problem(entry, values)
        yield Share(
            dp.Device(
                device_id,
                resource=resource,
                share_of=whole(stem, match.paths) if group.count > 1 else "",
                health=dp.Health.unhealthy(bounded(unfit)) if health and unfit else health,
                topology=_topology(match.device),
                nodes=match.nodes,
                mounts=(*match.mounts, *extra),
                envs={fill(k, named): fill(v, values) for k, v in entry.envs.items()}
                | {fill(k, named): part(v, values) for k, v in entry.joined.items()},
                annotations={
                    fill(k, values): fill(v, values) for k, v in entry.annotations.items()
                },
                cdi_names=[] if unfit else [fill(name, values) for name in entry.cdi],
                attributes=attributes(known, match.device),
                hardware=match.own,
                numbered=numbered,
            ),
            origin=key,
            policy=entry.policy,
            is_reserved=bool(entry.problem),
            check=entry.health,
            known=known,
        )


def _is_numbered(entry: Entry, group: Group) -> bool:
    """Return whether any part of a device contains its position in the container."""
    paths = (group.mount_path, *(spec.mount_path for spec in group.paths))
    pairs = (*entry.envs.items(), *entry.joined.items(), *entry.annotations.items())
    texts = (*chain(*pairs), *(mount.mount_path for mount in entry.mounts))
    return any(POSITION in path for path in paths) or any(map(is_numbered, texts))


def _with_usable_nodes(share: Share, group: Group, match: Match, tree: Tree) -> Share:
    """Return a share. It is unhealthy if anything is missing that its container also gets.

    The runtime refuses a container whose device node does not exist. The kernel refuses to open a
    device node that is only mounted.
    """
    extra = share.device.mounts[len(match.mounts) :]
    missing = [f"with: {path}: not on this node" for path in group.shared if not tree.is_node(path)]
    mounted = [one.host_path for one in extra if tree.is_node(one.host_path)]
    reasons = [*missing, *(f"mounts: {path} {NODE_AS_MOUNT}" for path in mounted)]
    if not (reasons and share.device.health):
        return share
    return replace(share, device=replace(share.device, health=dp.Health.unhealthy(reasons[0])))


def _extra_mounts(entry: Entry, values: Mapping[str, str]) -> tuple[list[dp.Mount], str]:
    """Return the mounts that an entry adds to a device, and why it cannot have one of them."""
    mounts, unfit = [], ""
    for mount in entry.mounts:
        try:
            path = templates.path(mount.path, values)
            inside = mount.mount_path and templates.path(mount.mount_path, values)
        except ValueError as error:
            unfit = unfit or f"mounts: {error}"
        else:
            mounts.append(dp.Mount(path, inside, read_only=mount.read_only))
    return mounts, unfit


def _cdi_problem(entry: Entry, values: Mapping[str, str]) -> str:
    """Return why a device cannot have the CDI names of its entry, also as an annotation."""
    listed = [text for key, text in entry.annotations.items() if key.startswith(_CDI)]
    odd = [text for text in entry.cdi if not _is_cdi_name(fill(text, values))]
    odd += [text for text in listed if not templates.is_one_name(text, values)]
    return f"{odd[0]}: {shown(fill(odd[0], values))} is not a name of a CDI device" if odd else ""


def _is_cdi_name(text: str) -> bool:
    kind, _, name = text.partition("=")
    return cdi.is_kind(kind) and cdi.is_device_name(name)


def _topology(device: hardware.Device | None) -> dp.Topology | None:
    above = device.line if device else ()
    return numa.topology(numa.nearest_node(one.attribute("numa_node") for one in above))


def of_rules(rules: tuple[Rule, ...], domain: str, tree: Tree, checker: Checker) -> list[Share]:
    """Return the devices that the rules of smarter-device-manager match.

    A path that several rules match belongs to the first of them.
    """
    shares: dict[str, list[Share]] = {}
    for rule in (one for one in rules if one.pattern):
        for name, match in of_rule(rule, tree):
            if name not in shares and match.nodes:
                health = checker.health(name, match, Check(), {})
                stem = usb.escaped(posixpath.relpath(match.paths[0], tree.roots.dev))
                shares[name] = [
                    Share(
                        dp.Device(
                            share_id(f"{stem}-{number}", 0, 1),
                            resource=f"{domain}/{name}",
                            share_of=whole(stem, match.paths) if rule.count > 1 else "",
                            health=health,
                            nodes=match.nodes,
                        ),
                        origin=name,
                    )
                    for number in range(rule.count)
                    # smarter-device-manager has no other files than device nodes either.
                    if health or match.problem
                ]
    return [share for some in shares.values() for share in some]
