"""Reading a container runtime's configuration: NVIDIA's runtime, and CDI."""

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

_CONTAINERD: Final = (
    "etc/containerd/config.toml",
    "etc/containerd/conf.d/*.toml",
    "var/lib/rancher/*/agent/etc/containerd/config.toml",  # k3s, RKE2
    "run/k0s/containerd-cri.toml",
    "var/snap/microk8s/current/args/containerd.toml",
)
_CRIO: Final = ("etc/crio/crio.conf", "etc/crio/crio.conf.d/*.conf", "etc/crio/crio.conf.d/*.toml")
_CRI: Final = ("io.containerd.cri.v1.runtime", "io.containerd.grpc.v1.cri")
_OF_CONTAINERD_2: Final = 3
"""The version of its configuration that containerd 1 rejects."""
_NVIDIA: Final = "nvidia"


@dataclass(frozen=True, slots=True)
class RuntimeConfig:
    """The configuration in all files together."""

    files: tuple[Path, ...]
    nvidia: tuple[str, ...] = ()
    """Names of NVIDIA's runtimes. A pod chooses one by its runtimeClassName."""
    is_default: bool = False
    """Whether one of them is used for pods without a runtimeClassName."""
    cdi: bool | None = None
    """Whether CDI is enabled; None if that depends on the version of containerd."""
    faults: tuple[str, ...] = ()
    """Files that cannot be read, with the reason."""


def read(root: Path) -> RuntimeConfig | None:
    """Return the configuration of the node at ``root``; None if none is found."""
    files, faults, runtimes = [], [], dict[str, str]()
    default, cdi = "", list[bool]()
    for path in _paths(root):
        try:
            document = tomllib.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            faults.append(f"{path}: {str(error).splitlines()[0]}")
            continue
        files.append(path)
        for section in _sections(document):
            runtimes |= section.runtimes
            default = section.default or default
            cdi += section.cdi
    if not files and not faults:
        return None
    nvidia = tuple(sorted(name for name, program in runtimes.items() if _NVIDIA in program))
    return RuntimeConfig(
        tuple(files), nvidia, default in nvidia, cdi[-1] if cdi else None, tuple(faults)
    )


@dataclass(frozen=True, slots=True)
class _Section:
    runtimes: Mapping[str, str]
    """The program of each runtime, by the name of the runtime."""
    default: str
    cdi: list[bool]


def _paths(root: Path) -> Iterator[Path]:
    for pattern in (*_CONTAINERD, *_CRIO):
        yield from sorted(root.glob(pattern))


def _sections(document: Mapping[str, Any]) -> Iterator[_Section]:
    if runtime := _table(document, "crio", "runtime"):
        runtimes = _table(runtime, "runtimes")
        programs = {name: str(_table(runtimes, name).get("runtime_path", "")) for name in runtimes}
        yield _Section(programs, str(runtime.get("default_runtime", "")), [True])
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
        yield _Section(programs, str(own.get("default_runtime_name", "")), given)


def _table(place: Mapping[str, Any], *names: str) -> Mapping[str, Any]:
    """Return a nested table; an empty one if it is missing."""
    for name in names:
        found = place.get(name)
        place = found if isinstance(found, Mapping) else {}
    return place
