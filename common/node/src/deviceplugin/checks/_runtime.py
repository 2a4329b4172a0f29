"""Reading the configuration of containerd, CRI-O and Docker: their runtimes, and CDI."""

import json
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast

_CONTAINERD: Final = (
    "etc/containerd/config.toml",
    "etc/containerd/conf.d/*.toml",
    "var/lib/rancher/*/agent/etc/containerd/config.toml",  # k3s, RKE2
    "run/k0s/containerd-cri.toml",
    "var/snap/microk8s/current/args/containerd.toml",
)
_CRIO: Final = ("etc/crio/crio.conf", "etc/crio/crio.conf.d/*.conf", "etc/crio/crio.conf.d/*.toml")
_DOCKER: Final = "etc/docker/daemon.json"
_BY_DOCKER: Final = "run/cri-dockerd.sock"
"""Where the kubelet reaches Docker. Without it, Docker is not for pods."""
_CRI: Final = ("io.containerd.cri.v1.runtime", "io.containerd.grpc.v1.cri")
_OF_CONTAINERD_2: Final = 3
"""The version of its configuration that containerd 1 rejects."""


@dataclass(frozen=True, slots=True)
class RuntimeConfig:
    """The configuration in all files together."""

    files: tuple[Path, ...]
    programs: Mapping[str, str]
    """The program of each runtime that has one set, by the name of the runtime."""
    default: str = ""
    """The runtime of pods without a runtimeClassName, if it is set."""
    cdi: bool | None = None
    """Whether CDI is enabled; None if that depends on the version of containerd."""
    cdi_dirs: tuple[str, ...] = ()
    """Where it looks for CDI specifications; empty for /etc/cdi and /var/run/cdi."""
    faults: tuple[str, ...] = ()
    """Files that cannot be read, with the reason."""


def runtime_config(root: Path) -> RuntimeConfig | None:
    """Return the configuration of the node at ``root``; None if none is found.

    Files of containerd and CRI-O count as one, since a node has one of them. Docker's comes last,
    since a node whose kubelet uses it has containerd too.
    """
    files, faults, programs = list[Path](), list[str](), dict[str, str]()
    default, cdi, cdi_dirs = "", list[bool](), tuple[str, ...]()
    for path in _paths(root):
        try:
            text = path.read_text(encoding="utf-8")
            found = json.loads(text) if path.suffix == ".json" else tomllib.loads(text)
        except (OSError, ValueError) as error:
            faults.append(f"{path}: {str(error).splitlines()[0]}")
            continue
        files.append(path)
        for section in _sections(_table({"": found}, "")):
            programs |= section.programs
            default = section.default or default
            cdi += section.cdi
            cdi_dirs = section.cdi_dirs or cdi_dirs
    if not files and not faults:
        return None
    is_on = cdi[-1] if cdi else None
    return RuntimeConfig(tuple(files), programs, default, is_on, cdi_dirs, tuple(faults))


@dataclass(frozen=True, slots=True)
class _Section:
    programs: Mapping[str, str]
    default: str
    cdi: list[bool]
    cdi_dirs: tuple[str, ...] = ()


def _paths(root: Path) -> Iterator[Path]:
    for pattern in (*_CONTAINERD, *_CRIO):
        yield from sorted(root.glob(pattern))
    if (root / _BY_DOCKER).exists():
        yield from root.glob(_DOCKER)


def _sections(document: Mapping[str, Any]) -> Iterator[_Section]:
    if runtimes := _table(document, "runtimes"):
        programs = {name: str(_table(runtimes, name).get("path", "")) for name in runtimes}
        yield _Section(programs, str(document.get("default-runtime", "")), [])
    if runtime := _table(document, "crio", "runtime"):
        runtimes = _table(runtime, "runtimes")
        programs = {name: str(_table(runtimes, name).get("runtime_path", "")) for name in runtimes}
        default = str(runtime.get("default_runtime", ""))
        yield _Section(programs, default, [True], _strings(runtime, "cdi_spec_dirs"))
    newest = document.get("version") == _OF_CONTAINERD_2
    if newest:
        yield _Section({}, "", [True])
    for plugin in _CRI:
        cri = _table(document, "plugins", plugin)
        own = _table(cri, "containerd")
        runtimes = _table(own, "runtimes")
        programs = {
            name: str(_table(runtimes, name, "options").get("BinaryName", "")) for name in runtimes
        }
        given = [bool(cri["enable_cdi"])] if "enable_cdi" in cri else []
        default = str(own.get("default_runtime_name", ""))
        yield _Section(programs, default, given, _strings(cri, "cdi_spec_dirs"))


def _strings(place: Mapping[str, Any], name: str) -> tuple[str, ...]:
    found: Any = place.get(name)
    return tuple(map(str, cast("Sequence[object]", found))) if isinstance(found, list) else ()


def _table(place: Mapping[str, Any], *names: str) -> Mapping[str, Any]:
    """Return a nested table; an empty one if it is missing."""
    for name in names:
        found: Any = place.get(name)
        place = cast("Mapping[str, Any]", found) if isinstance(found, Mapping) else {}
    return place
