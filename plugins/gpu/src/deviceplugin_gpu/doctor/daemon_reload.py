"""Which containers lose their GPUs when systemd reloads its units, and whether new ones would.

In legacy mode a hook of NVIDIA's toolkit allows devices in the container's control group itself.
systemd, which manages the group, knows nothing of that, and takes them away when it sets its own
rules again. Devices that are in the OCI specification, as by CDI, are among systemd's rules.
"""

import fcntl
import json
import os
import re
import subprocess
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Final

from deviceplugin.checks import Finding, Node, ok, unknown, warning
from deviceplugin.kit.log import few
from deviceplugin_gpu.configuration.settings import GpuSettings
from deviceplugin_gpu.doctor.container_runtime import Requests

_WHAT: Final = "systemctl daemon-reload"
_TASKS: Final = "io.containerd.runtime.v2.task/*/*/config.json"
_BUNDLES: Final = (
    *(f"run/{place}containerd/{_TASKS}" for place in ("", "k3s/", "k0s/")),
    f"var/snap/microk8s/common/run/containerd/{_TASKS}",
    f"run/docker/containerd/daemon/{_TASKS}",
    "run/containers/storage/*-containers/*/userdata/config.json",  # CRI-O
)
"""Where runtimes have the OCI specifications of the containers that run."""
_UNITS: Final = "run/systemd/transient"
_MOST_BUNDLES: Final = 4096
_MOST_SAID: Final = 4096
_MOST_NAMED: Final = 10
_HOOKS: Final = ("nvidia-container-runtime-hook", "nvidia-container-toolkit")
_NONE: Final = ("", "void", "none")
_NODES: Final = re.compile("/dev/(nvidia|dxg)")
_MAJOR: Final = 195
"""Of /dev/nvidiactl and the GPUs."""
_CONTROL: Final = {"path": "/dev/nvidiactl", "major": _MAJOR, "minor": 255}
_ALL: Final = ("*", "char-*")
_BY_NUMBER: Final = 240
"""The version of systemd that takes a device number without a file of that name."""
_RUNC_SKIPS: Final = ((1, 1, 3), (1, 1, 7))
"""The first version of runc that drops rules for devices without a link in /dev/char, and the first
one after it that does not."""
_BY_CDI: Final = (1, 18)
"""The version of the toolkit from which its mode auto is not legacy."""
_NUMBER: Final = r" version v?(\d+)\.(\d+)(?:\.(\d+))?"
_SYSTEMD: Final = ("lib/systemd", "usr/lib/systemd", "usr/lib/*/systemd")
_ODD: Final = (
    OSError,
    ValueError,
    ArithmeticError,
    AttributeError,
    KeyError,
    RecursionError,
    TypeError,
)
_SHARED: Final = re.compile(r"libsystemd-shared-(\d+)")
_MEANS: Final = (
    "after it, or an update of packages that calls it, CUDA and nvidia-smi in the container fail "
    "until it is created again: 'Failed to initialize NVML: Unknown Error'."
)
_CURE: Final = (
    "set pass-device-specs: true, or use cdi-cri, or nvidia-container-toolkit 1.18 or newer with "
    "mode = \"auto\"; then delete the pods. See 'GPUs that vanish' in docs/cdi.md."
)
_CURE_OF_LINKS: Final = (
    "update runc to 1.1.7 or newer and systemd to 240 or newer, or run nvidia-ctk system "
    "create-dev-char-symlinks --create-all at each boot; then delete the pods."
)
_LEGACY: Final = "NVIDIA's runtime added them in mode legacy, and systemd does not know of them"
_REFUSED: Final = "their OCI specification has device nodes that systemd's units do not allow"
_NAMES: Final = (
    ("io.kubernetes.cri.sandbox-namespace", "io.kubernetes.pod.namespace"),
    ("io.kubernetes.cri.sandbox-name", "io.kubernetes.pod.name"),
    ("io.kubernetes.cri.container-name", "io.kubernetes.container.name"),
)

Rules = Sequence[str] | None
Version = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Host:
    """The versions that decide it; empty or 0 where they are unknown."""

    systemd: int = 0
    runc: Version = ()
    toolkit: Version = ()
    cgroup: str = ""

    def __str__(self) -> str:
        parts = {
            "systemd": self.systemd,
            "runc": _dotted(self.runc),
            "NVIDIA's toolkit": _dotted(self.toolkit),
            "cgroup": self.cgroup,
        }
        return ", ".join(f"{name} {one or 'of unknown version'}" for name, one in parts.items())


def look_at_reload(
    node: Node, requests: Requests | None, settings: GpuSettings
) -> Iterator[Finding]:
    """Yield which containers would lose their GPUs, or else whether new ones would."""
    host = _host(node, requests)
    found = (path for pattern in _BUNDLES for path in node.matches(pattern))
    bundles = [*islice(found, _MOST_BUNDLES)]
    lost = defaultdict[str, list[str]](list)
    for name, why in _containers(node, bundles, host, requests):
        lost[why].append(name)
    for why, names in lost.items():
        shown = few(sorted(names), _MOST_NAMED)
        do = _CURE if why == _LEGACY else _CURE_OF_LINKS
        yield warning(_WHAT, f"{shown}: would lose GPUs: {why} ({host})", means=_MEANS, do=do)
    if requests is not None and not lost:
        yield _prospect(node, host, requests, settings)
    if requests is not None and not 0 < len(bundles) < _MOST_BUNDLES:
        seen = ("none can be seen from here", "run it as root on the node, or with --root.")
        seen = (f"only {_MOST_BUNDLES} were examined", "") if bundles else seen
        yield unknown("containers with GPUs", *seen)


def _prospect(node: Node, host: Host, requests: Requests, settings: GpuSettings) -> Finding:
    strategies = settings.device_list_strategy
    if requests.systemd is False:
        return ok(_WHAT, "pods keep their GPUs: systemd does not manage their control groups")
    by_cdi = strategies.cdi or node.settings.protocol == "dra"
    mode = _mode(node, host, requests)
    if by_cdi or settings.pass_device_specs or mode not in {"", "legacy"}:
        if why := _skipped(node, host, _MAJOR, 0):
            found = f"new pods would lose their GPUs: {why}"
            return warning(_WHAT, found, means=_MEANS, do=_CURE_OF_LINKS)
        return ok(_WHAT, "pods keep their GPUs: systemd knows their devices")
    with_these = f"new pods with {', '.join(strategies.names)} and without pass-device-specs"
    if mode and requests.systemd:
        found = f"{with_these} would lose their GPUs: NVIDIA's runtime has mode legacy ({host})"
        return warning(_WHAT, found, means=_MEANS, do=_CURE)
    need = "systemd manages control groups" if mode else "NVIDIA's runtime has mode legacy"
    return unknown(_WHAT, f"{with_these} would lose their GPUs if {need} ({host})", _CURE)


def _mode(node: Node, host: Host, requests: Requests) -> str:
    """Return the mode of NVIDIA's runtime; empty if that depends on an unknown version."""
    if (of_program := Path(requests.program).suffix[1:]) in {"cdi", "legacy"}:
        return of_program
    if requests.mode != "auto":
        return requests.mode
    if node.exists("etc/nv_tegra_release"):
        return "csv"
    if requests.fault or not host.toolkit:
        return ""
    return "legacy" if host.toolkit < _BY_CDI else "jit-cdi"


def _host(node: Node, requests: Requests | None) -> Host:
    places = (one for folder in _SYSTEMD for one in node.matches(f"{folder}/libsystemd-shared-*"))
    versions = [int(found[1]) for one in places if (found := _SHARED.search(one.name))]
    said = _said(node, requests.program) if requests else ""
    runc, toolkit = (re.search(f"{name}{_NUMBER}", said) for name in ("runc", "Runtime"))
    signs = {"v2": "cgroup.controllers", "v1": "devices"}
    cgroup = next((v for v, one in signs.items() if node.exists(f"sys/fs/cgroup/{one}")), "")
    return Host(max(versions, default=0), _numbers(runc), _numbers(toolkit), cgroup)


def _said(node: Node, program: str) -> str:
    """Return what NVIDIA's runtime, and runc which it calls, say of their versions.

    Only on the node itself, where the program is what the container runtime starts.
    """
    if node.root != Path("/") or not program.startswith("/"):
        return ""
    limits: Any = {
        "stdin": subprocess.DEVNULL,
        "stderr": subprocess.DEVNULL,
        "timeout": node.timeout,
    }
    # A pipe would stay open with a child of it, and a file needs a disk.
    with os.fdopen(os.memfd_create("version", os.MFD_ALLOW_SEALING), "r+b") as output:
        output.truncate(_MOST_SAID)
        fcntl.fcntl(output, fcntl.F_ADD_SEALS, fcntl.F_SEAL_GROW)
        try:  # what the container runtime starts, as root too
            subprocess.run([program, "--version"], check=False, stdout=output, **limits)  # noqa: S603
        except (OSError, ValueError, subprocess.TimeoutExpired):
            return ""
        return os.pread(output.fileno(), _MOST_SAID, 0).decode(errors="replace")


def _containers(
    node: Node, bundles: Iterable[Path], host: Host, requests: Requests | None
) -> Iterator[tuple[str, str]]:
    """Yield each container that would lose its GPUs, and why."""
    for path in bundles:
        text = node.peek(path.relative_to(node.root))  # empty if it has ended meanwhile
        try:
            spec: Any = json.loads(text) if "nvidia" in text else {}
            if why := _lost(node, host, requests, spec):
                yield _name(spec, path), why
        except _ODD:
            continue


def _lost(node: Node, host: Host, requests: Requests | None, spec: Mapping[str, Any]) -> str:
    """Return why a container would lose its GPUs; empty if it would not, or has none."""
    linux = spec.get("linux") or {}
    parts = str(linux.get("cgroupsPath", "")).split(":")
    if len(parts) != 3 or "/" in linux["cgroupsPath"] or _allows_all(linux):  # noqa: PLR2004
        return ""
    rules = _rules(node, f"{parts[1]}-{parts[2]}.scope")
    devices = [one for one in linux.get("devices") or () if _NODES.match(one["path"])]
    if devices:
        if all(_is_kept(node, host, rules, one) for one in devices):
            return ""
        return _skipped(node, host, _MAJOR, 0) or _REFUSED
    is_kept = rules is not None and _is_kept(node, host, rules, _CONTROL)
    return _LEGACY if _is_by_hook(spec, requests) and not is_kept else ""


def _is_by_hook(spec: Mapping[str, Any], requests: Requests | None) -> bool:
    """Return whether NVIDIA's hook gives a container GPUs, past its OCI specification."""
    hooks = [one for kind in (spec.get("hooks") or {}).values() for one in kind]
    if not any(Path(one["path"]).name in _HOOKS for one in hooks):
        return False
    environment = dict(one.partition("=")[::2] for one in spec["process"].get("env") or ())
    value = environment.get("NVIDIA_VISIBLE_DEVICES", "")
    is_taken = value.startswith("/") or requests is None or requests.by_variable
    return is_taken and value not in _NONE


def _is_kept(node: Node, host: Host, rules: Rules, device: Mapping[str, Any]) -> bool:
    major, minor = int(device["major"]), int(device["minor"])
    if rules is None:
        return not _skipped(node, host, major, minor)
    number = f"/dev/char/{major}:{minor}"
    if number in rules:
        is_parsed = not host.systemd or host.systemd >= _BY_NUMBER
        return is_parsed or node.exists(number)
    known = {*_ALL, f"char-{major}", str(device["path"])}
    return any(rule in known or rule.startswith("char-nvidia") for rule in rules)


def _skipped(node: Node, host: Host, major: int, minor: int) -> str:
    """Return why systemd does not get the rule for a device of the OCI specification, or empty."""
    if node.exists(f"dev/char/{major}:{minor}"):
        return ""
    if 0 < host.systemd < _BY_NUMBER:
        return f"systemd {host.systemd} needs links in /dev/char, and there are none for GPUs"
    first, fixed = _RUNC_SKIPS
    if host.runc and first <= host.runc < fixed:
        return f"runc {_dotted(host.runc)} drops devices without a link in /dev/char"
    return ""


def _rules(node: Node, unit: str) -> Rules:
    """Return the devices that systemd's unit of a container allows; None if units are not seen.

    All, if the container has ended, and its unit with it.
    """
    own = node.at(f"{_UNITS}/{unit}")
    folder = own.with_name(f"{unit}.d")
    paths = [own, *(sorted(folder.iterdir()) if folder.is_dir() else ())]
    text = "\n".join(node.peek(path.relative_to(node.root)) for path in paths)
    if not own.parent.is_dir():
        return None
    rules, policy = list[str](), ""
    for key, _, value in (line.strip().partition("=") for line in text.splitlines()):
        if key == "DeviceAllow":
            rules = [*rules, value.split()[0]] if value.strip() else []
        elif key == "DevicePolicy":
            policy = value.strip()
    return rules if rules or policy in {"strict", "closed"} else [*_ALL]


def _allows_all(linux: Mapping[str, Any]) -> bool:
    """Return whether a container may use any device, as a privileged one may."""
    rules = (linux.get("resources") or {}).get("devices") or ()
    return any(
        one.get("allow") and one.get("type", "a") in {"", "a"} and one.get("major") is None
        for one in rules
    )


def _name(spec: Mapping[str, Any], path: Path) -> str:
    given = spec.get("annotations") or {}
    found = [next((given[key] for key in keys if key in given), "") for keys in _NAMES]
    text = "/".join(map(str, found)) if all(found) else path.parent.name
    return "".join(filter(str.isprintable, text))[:200]


def _numbers(found: "re.Match[str] | None") -> Version:
    return tuple(int(one) for one in found.groups(default="0")) if found else ()


def _dotted(version: Version) -> str:
    return ".".join(map(str, version))
