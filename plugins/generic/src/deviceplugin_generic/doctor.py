"""What ``deviceplugin doctor`` checks: the file, what matches it, and what it exposes."""

import posixpath
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Final

from deviceplugin import ConfigError, DiscoveryError
from deviceplugin.checks import (
    GIVES_DEVICES,
    Finding,
    Node,
    RuntimeConfig,
    failure,
    ok,
    runtime_config,
    warning,
)
from deviceplugin.kit.usb import Ledger
from deviceplugin_generic import DEFAULT_CONFIG
from deviceplugin_generic.configuration import globs
from deviceplugin_generic.configuration.entries import (
    Check,
    Configuration,
    Entry,
    ExtraMount,
    PathSpec,
    Rule,
)
from deviceplugin_generic.discovery.access import Access, access, listed
from deviceplugin_generic.discovery.devices import of_entry
from deviceplugin_generic.discovery.health import Checker
from deviceplugin_generic.discovery.matching import of_rule
from deviceplugin_generic.discovery.tree import Roots, Tree
from deviceplugin_generic.plugin import GenericSettings

_WITH_ALL_BELOW: Final = (
    *("/bin", "/boot", "/etc", "/lib", "/lib64", "/root", "/sbin", "/usr"),
    *("/var/lib/kubelet", "/var/lib/containerd", "/var/lib/containers", "/var/lib/docker"),
    *("/var/lib/etcd", "/var/lib/rancher", "/run/containerd", "/run/crio", "/run/docker.sock"),
)
"""Programs, accounts and secrets of the host: what is below is as good as the whole."""
_AS_A_WHOLE: Final = ("/dev", "/home", "/proc", "/run", "/sys")
"""Parts of these are common, such as /run/udev. All of one is too much."""
_VARIABLE: Final = re.compile(r"[*?\[\\{]")
_DISKS: Final = r"((sd|hd|vd|xvd)[a-z]+|(nvme|dm-|md|mmcblk|loop)\d).*|(mapper|disk|block)/.+"
_NODES: Final = re.compile(rf"/dev/(mem|kmem|port|{_DISKS})")
_SAMPLES: Final = (
    *("/dev/mem", "/dev/sda", "/dev/sda1", "/dev/vda", "/dev/nvme0n1", "/dev/dm-0", "/dev/md0"),
    *("/dev/mmcblk0", "/dev/mapper/root", "/dev/disk/by-label/root"),
)
"""What a pattern of device nodes is tried on."""

_TABLES: Final = (
    "[plugins.'io.containerd.cri.v1.runtime'] ([plugins.'io.containerd.grpc.v1.cri'] in version 2)"
)
_NONE: Final = "the generic plugin advertises nothing."
_PLUG_IN: Final = "plug it in, load its driver, or correct the path; in a pod, mount /dev."


def exposed(entry: Entry) -> Iterator[str]:
    """Yield the mounts and device nodes of an entry by which a container is root on the node."""
    specs = [spec for group in entry.groups for spec in group.paths]
    mounts: list[PathSpec | ExtraMount] = [spec for spec in specs if spec.is_mount]
    for one in (*mounts, *entry.mounts):
        if _is_sensitive(one.path):
            yield f"{one.path} ({'read-only' if one.read_only else 'writable'})"
    nodes = [spec.path for spec in specs if not spec.is_mount]
    nodes += [path for group in entry.groups for path in group.shared]
    yield from filter(is_memory_or_disk, nodes)
    if any(one.subsystem == "block" for group in entry.groups for one in group.selectors):
        yield "devices of the subsystem block"


def is_memory_or_disk(path: str) -> bool:
    """Return whether a device node, or one that a pattern matches, is memory or a disk."""
    known = _NODES.fullmatch(posixpath.normpath(path))
    return known is not None or any(globs.matches(one, path) for one in _SAMPLES)


def _is_sensitive(path: str) -> bool:
    """Return whether a mount is, or can be, above, at or in a part of the host that matters."""
    fixed, *variable = _VARIABLE.split(f"/{path.lstrip('/')}", maxsplit=1)
    end = "/" if fixed.endswith("/") else ""
    place = re.sub(r"^/var/run(?=/|$)", "/run", posixpath.normpath(fixed).rstrip("/") + end)
    above = place if variable else f"{place.rstrip('/')}/"
    return any(
        f"{one}/".startswith(above) for one in (*_WITH_ALL_BELOW, *_AS_A_WHOLE)
    ) or place.startswith(tuple(f"{one}/" for one in _WITH_ALL_BELOW))


def look(node: Node) -> Iterable[Finding]:
    """The generic plugin's configuration, and what matches it."""
    path = node.config or node.at(DEFAULT_CONFIG)
    if not path.exists():
        return [_absent(node, path)]
    try:
        configuration = node.own_settings(GenericSettings, path).device.configuration
    except ConfigError as error:
        means = "the generic plugin exits with status 2, and its pod restarts for ever."
        do = f"generic-device-plugin check {path} lists all errors, with their lines."
        if _skips_would_do(node, path):
            means = f"{means[:-1]}, unless it has --on-invalid-entry skip."
        if node.section is not None:
            means = _NONE
            do = f"device-plugins --config {path} --print-config lists all errors."
        found = str(error).removeprefix(f"{path}: ").replace(f"{path}:", "line ")
        return [failure(path, found, means=means, do=do)]
    return _devices(node, path, configuration)


def _skips_would_do(node: Node, path: Path) -> bool:
    """Return whether nothing but entries is wrong: a flag, which is not known here, decides."""
    with suppress(ConfigError):
        node.own_settings(GenericSettings, path, {"DP_ON_INVALID_ENTRY": "skip"})
        return True
    return False


def _absent(node: Node, path: Path) -> Finding:
    if node.config or "generic" in node.plugins:
        return failure(
            path,
            "does not exist",
            means=_NONE,
            do="mount the ConfigMap there, or name the file with --config.",
        )
    return ok(path, "does not exist; only the generic plugin needs it")


def _devices(node: Node, path: Path, configuration: Configuration) -> Iterator[Finding]:
    yield from _without_devices(path, configuration)
    entries = [one for one in configuration.entries if not one.problem]
    for entry in entries:
        yield _entry(node, path, entry)
        yield from _exposure(f"{path}: {entry.name}", list(exposed(entry)))
        if entry.health.command:
            yield ok(
                f"{path}: {entry.name}", f"runs {entry.health.command[0]} in the plugin, as root"
            )
    for rule in (one for one in configuration.rules if not one.problem):
        yield from _rule(node, path, rule)
    tree = Tree(Roots(dev=node.at("/dev"), sys=node.at("/sys"), udev=node.at("/run/udev/data")))
    found = {entry.name: _access(node, entry, tree) for entry in entries}
    runtime = runtime_config(node) if any(one.closed for one in found.values()) else None
    for name, one in found.items():
        yield from _who(f"{path}: {name}", one, runtime)


def _without_devices(path: Path, configuration: Configuration) -> Iterator[Finding]:
    """Yield what of a file has no devices, and why."""
    for reason in configuration.left_out:
        means = "the generic plugin advertises nothing for this entry."
        yield warning(path, f"{reason}; skipped", means=means, do="remove the entry.")
    do = "add entries to devices; in its pod, generic-device-plugin explain prints them."
    if not configuration.is_given:
        yield failure(path, "has no devices", means=_NONE, do=do)
    elif not (configuration.entries or configuration.rules or configuration.left_out):
        yield warning(path, "has no devices: its list is empty", means=_NONE, do=do)
    for problem in configuration.problems:
        means = "the generic plugin advertises nothing for this entry, as on-invalid-entry says."
        yield failure(path, problem, means=means, do="correct the entry.")


def _entry(node: Node, path: Path, entry: Entry) -> Finding:
    specs = [spec for group in entry.groups for spec in group.paths]
    patterns = sorted({spec.path for spec in specs if not spec.optional})
    names = globs.Names(str(node.at("/dev")))
    bare = [one for one in patterns if not globs.glob(_below(node.root, one), names)]
    looked_at = f"{path}: {entry.name}"
    if patterns and bare == patterns:
        found = f"nothing matches {', '.join(patterns)}"
        means = "the resource has no device, unless its other selectors find some."
        return warning(looked_at, found, means=means, do=_PLUG_IN)
    return ok(looked_at, f"{len(patterns) - len(bare)} of {len(patterns)} paths match")


def _access(node: Node, entry: Entry, tree: Tree) -> Access:
    """Return who may open the device nodes that an entry has now."""
    groups = tuple(
        replace(one, paths=tuple(replace(x, path=_below(node.root, x.path)) for x in one.paths))
        for one in entry.groups
    )
    only_there = replace(entry, groups=groups, health=Check())  # no command runs, nothing is opened
    try:
        shares = of_entry(only_there, "", tree, Checker(), Ledger())
    except DiscoveryError:  # they are too many, which the plugin says itself
        return Access()
    return access((one for share in shares for one in share.device.nodes), node.at("/dev"))


def _who(looked_at: str, found: Access, runtime: RuntimeConfig | None) -> Iterator[Finding]:
    for number, paths in found.groups.items():
        yield ok(looked_at, f"{listed(paths)}: a pod that is not root needs the group {number}")
    if found.unseen:
        yield ok(looked_at, f"{listed(found.unseen)}: which group it has is not visible here")
    # Programs for virtual machines open those of VFIO as root.
    others = [one for one in found.closed.items() if not one[0].startswith("/dev/vfio/")]
    closed = listed([f"{path} ({mode})" for path, mode in others])
    if closed and runtime and runtime.gives_devices:
        means = f"belongs to the user of a pod with runAsUser: {GIVES_DEVICES} is on"
        yield ok(looked_at, f"{closed}: {means}")
    elif closed and runtime:
        known = "off" if runtime.is_complete else "not known here"
        yield warning(
            looked_at,
            f"only the owner can open {closed}; {GIVES_DEVICES}: {known}",
            means="a container that is not root gets Permission denied, whatever its groups are.",
            do=f"write a udev rule with GROUP and MODE; or {_setting(runtime)}, and restart it.",
        )


def _setting(runtime: RuntimeConfig) -> str:
    """Return what to write so that device nodes belong to the user of a pod, and where."""
    said = f"{runtime.asked} {runtime.source}"
    if "/k3s/" in said or "/rke2/" in said:
        name = "rke2" if "/rke2/" in said else "k3s"
        return f"nonroot-devices: true in /etc/rancher/{name}/config.yaml"
    if "/crio" in said:
        return f"{GIVES_DEVICES} = true below [crio.runtime] in /etc/crio/crio.conf.d"
    file = next(iter(runtime.files), "/etc/containerd/config.toml")
    return f"{GIVES_DEVICES} = true below {_TABLES} in {file}"


def _rule(node: Node, path: Path, rule: Rule) -> Iterator[Finding]:
    looked_at = f"{path}: {rule.pattern}"
    found = list(of_rule(rule, Tree(Roots(dev=node.at("/dev"), sys=node.at("/sys")))))
    if found:
        yield ok(looked_at, f"{len(found)} paths below /dev match")
        nodes = {one.container_path for _, match in found for one in match.nodes}
        yield from _exposure(looked_at, sorted(filter(is_memory_or_disk, nodes)))
    else:
        means = "it makes no resource."
        yield warning(looked_at, "nothing below /dev matches", means=means, do=_PLUG_IN)


def _exposure(looked_at: str, exposed: Sequence[str]) -> Iterator[Finding]:
    if exposed:
        yield warning(
            looked_at,
            f"gives containers {', '.join(exposed)}",
            means="a pod that gets the device can be root on the node, and so can whoever may "
            "create one.",
            do="give only what the device needs, and read-only if that will do; let only "
            "administrators of the nodes edit the configuration.",
        )


def _below(root: Path, pattern: str) -> str:
    """Return a pattern of the node, whose ``/`` is at ``root``."""
    return globs.literal(str(root)).rstrip("/") + pattern
