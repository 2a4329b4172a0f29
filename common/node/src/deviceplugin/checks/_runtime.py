"""What the node's container runtime is configured to: as it says itself, or by its files."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import chain
from pathlib import Path
from typing import Final, NamedTuple

from deviceplugin.checks._node import Finding, Node, unknown, warning
from deviceplugin.checks._runtime_files import GIVES_DEVICES, Reader, Section
from deviceplugin.checks._runtime_socket import Answer, ask_containerd, ask_crio

RUNTIME: Final = "container runtime"


class _Place(NamedTuple):
    """Where a distribution has the socket of containerd, and the file that it starts with."""

    socket: str
    files: Sequence[str]


_USUAL: Final = "/etc/containerd/config.toml"
_PLACES: Final = (
    _Place(
        "/run/k3s/containerd/containerd.sock",  # k3s, RKE2
        ("/var/lib/rancher/*/agent/etc/containerd/config.toml",),
    ),
    _Place(
        "/run/k0s/containerd.sock", ("/etc/k0s/containerd.toml", "/run/k0s/containerd-cri.toml")
    ),
    _Place(
        "/var/snap/microk8s/common/run/containerd.sock",
        ("/var/snap/microk8s/current/args/containerd.toml",),
    ),
    _Place("/run/containerd/containerd.sock", (_USUAL, "/etc/cri/containerd.toml")),  # Talos
)
_BY_ITSELF: Final = "/etc/k0s/"
"""Where k0s merges the files of a folder itself."""
_CRIO_SOCKET: Final = "/run/crio/crio.sock"
_ASK: Final = {_CRIO_SOCKET: ask_crio}
_CRIO: Final = ("/etc/crio/crio.conf", "/etc/crio/crio.conf.d")
_DOCKER: Final = "/etc/docker/daemon.json"
_BY_DOCKER: Final = "run/cri-dockerd.sock"
"""Where the kubelet reaches Docker. Without it, Docker is not for pods."""
_OF_DOCKER: Final = "/docker/"
"""A part of the configuration's path of the containerd that Docker starts."""
_OPTION: Final = re.compile("(?:^|\0)--?([ca])(?:onfig|ddress)?[=\0](/[^\0]+)")
_ENDPOINT: Final = re.compile(
    r"container-?runtime-?endpoint[=:\0 \"']+(?:unix://)?(/[^\s\0\"']+)", re.IGNORECASE
)
_KUBELET: Final = ("var/lib/kubelet/kubeadm-flags.env", "var/lib/kubelet/config.yaml")
_OF_ROOT: Final = re.compile(r"^Uid:\s+0\s+0\s", re.MULTILINE)
"""The real and the effective user: a program of root that others may start has another real one."""
_BUILT_IN: Final = frozenset({"runc", "crun"})
_IS_OFF: Final = "UNIMPLEMENTED"
_WIDEST: Final = 200


@dataclass(frozen=True, slots=True)
class RuntimeConfig(Section):
    """The configuration of the container runtime that pods have: its own word, if ``asked``."""

    files: tuple[Path, ...] = ()
    """The files that were read."""
    asked: str = ""
    """The runtime that answered, with its version and socket; empty if none did."""
    faults: tuple[str, ...] = ()
    """Files that cannot be read, with the reason."""
    silent: tuple[str, ...] = ()
    """Sockets on which nobody answered, with the reason."""
    unread: tuple[Path, ...] = ()
    """Files beside those that are read, which nothing imports."""
    is_crio: bool | None = False
    """Whether pods have CRI-O; None if nothing says which of several runtimes they have."""
    search: tuple[str, ...] = ()
    """Where CRI-O looks for images whose names have no registry."""
    differences: tuple[str, ...] = ()
    """What the files say otherwise than the runtime: they were edited after it had started."""

    @property
    def is_known(self) -> bool:
        """Whether anything is known of it."""
        return bool(self.asked or self.files or self.faults)

    @property
    def is_complete(self) -> bool:
        """Whether all of it is known: what is not here is not set."""
        return bool(self.asked or (self.files and not self.faults))

    @property
    def source(self) -> str:
        """Who said it: the runtime, or else its files."""
        return self.asked or ", ".join(map(str, self.files)) or RUNTIME

    def findings(self) -> Iterator[Finding]:
        """Yield what is wrong with the files, and what the runtime does not have of them."""
        for why in self.silent:
            if not (self.asked and _IS_OFF in why):  # pods have the other one
                do = "be root; if you are, see whether it hangs. Its files are read instead."
                yield unknown(RUNTIME, f"does not say its configuration: {why}", do)
        if not self.is_known:
            do = "run the doctor on the node, or with its root mounted: --root."
            yield unknown(RUNTIME, "no configuration found", do)
        for fault in self.faults:
            means = "the doctor ignores that file, and a runtime may not start with it."
            yield warning(RUNTIME, fault, means=means, do="correct it; if not permitted, be root.")
        for path in self.unread:
            means = "what it says of runtimes or CDI has no effect."
            do = "add it to imports in the file that the runtime starts with, or remove it."
            yield warning(path, "is there, and nothing imports it", means=means, do=do)
        for one in self.differences:
            means = "the files were edited after the runtime had started: it has the old ones."
            yield warning(RUNTIME, one, means=means, do="restart the container runtime.")


def runtime_config(node: Node) -> RuntimeConfig:
    """Return how the node's container runtime is configured.

    The runtime is asked, for about ``node.timeout`` seconds a socket at most. Files are read where
    it does not answer, and to compare. For a kubelet that uses Docker, files are read alone.
    """
    reader = Reader(node.root)
    is_docker = node.exists(_BY_DOCKER)
    started = [] if is_docker else [*_started(node)]
    there = [one for one in _PLACES if node.exists(one.socket) and not is_docker]
    silent = list[str]()
    sockets = [one.socket for one in (*started, *there)]
    first = _of_kubelet(node)
    asked = sorted([*sockets, _CRIO_SOCKET], key=lambda one: one != first)
    path, answer = _ask(node, [] if is_docker else asked, silent)
    places = [one for one in (*started, *there) if one.socket == path][:1] or started or there
    mains = [*_mains(reader, places or _PLACES)] if path != _CRIO_SOCKET else []
    section = reader.docker(_DOCKER) if is_docker else Section()
    if path not in sockets:
        section = section.over(reader.crio(*_CRIO))
    for main in mains:
        is_2 = answer.is_2 if answer else None
        section = section.over(reader.containerd(main, is_2=is_2))
    own = answer.section if answer else section
    is_crio = not is_docker and _is_crio(node, path or first, reader, others=bool(started or there))
    registries = Reader(node.root)
    search = registries.search() if is_crio else ()
    is_read = reader.files and not reader.faults
    return RuntimeConfig(
        **{one.name: getattr(own, one.name) for one in fields(own)},
        files=tuple(reader.files),
        asked=f"{answer.name} at {path}" if answer else "",
        faults=(*reader.faults, *registries.faults),
        silent=tuple(silent),
        unread=tuple(_unread(reader, mains)),
        is_crio=is_crio,
        search=search,
        differences=tuple(_differences(section, own)) if is_read else (),
    )


def _is_crio(node: Node, socket: str, reader: Reader, *, others: bool) -> bool | None:
    """Return whether pods have CRI-O: by its ``socket``, or else by what is there.

    ``others`` says whether other runtimes are.
    """
    of_crio = ["/etc/crio/" in str(path) for path in reader.files]
    if socket or not (any(of_crio) or node.exists(_CRIO_SOCKET)):
        return socket == _CRIO_SOCKET
    return None if others or not all(of_crio) else True


def _started(node: Node) -> Iterator[_Place]:
    """Yield what the command lines of this machine's own containerds name."""
    for process in node.processes_named("containerd"):
        if _is_contained(node.root / process):
            continue
        if not _OF_ROOT.search(node.peek(process / "status")):
            continue  # anybody may have that name, and what it names is run by another check
        given = dict(_OPTION.findall(node.peek(process / "cmdline")))
        if "c" in given and _OF_DOCKER not in given["c"]:
            yield _Place(given.get("a", _PLACES[-1].socket), (given["c"],))


def _of_kubelet(node: Node) -> str:
    """Return the socket that the kubelet is configured to use; empty if that is not seen."""
    words = (process / "cmdline" for process in node.processes_named("kubelet"))
    found = _ENDPOINT.search("\n".join(map(node.peek, (*words, *map(Path, _KUBELET)))))
    return found[1].replace("/var/run/", "/run/") if found else ""


def _is_contained(process: Path) -> bool:
    """Return whether a process sees other files than the node's first one."""
    try:
        return (process / "ns/mnt").readlink() != (process.parent / "1/ns/mnt").readlink()
    except OSError:
        return False


def _ask(node: Node, sockets: Iterable[str], silent: list[str]) -> tuple[str, Answer | None]:
    """Return the first answer and its socket, and add to ``silent`` why others gave none."""
    for path in dict.fromkeys(sockets):
        if node.exists(path):
            try:
                return path, _ASK.get(path, ask_containerd)(node.at(path), node.timeout)
            except OSError as error:
                silent.append(f"{path}: {' '.join(str(error).split())[:_WIDEST]}")
    return "", None


def _mains(reader: Reader, places: Iterable[_Place]) -> Iterator[str]:
    """Yield the files with which containerd starts."""
    for pattern in chain.from_iterable(one.files for one in places):
        yield from filter(reader.exists, reader.matches(pattern) if "*" in pattern else [pattern])


def _unread(reader: Reader, mains: Sequence[str]) -> Iterator[Path]:
    """Yield files for containerd that it does not read; none if something could not be read."""
    if reader.faults or len(mains) != 1 or mains[0].startswith(_BY_ITSELF):
        return
    for main in dict.fromkeys([mains[0], _USUAL]):
        yield from reader.unread(main)


def _differences(files: Section, own: Section) -> Iterator[str]:
    facts = _facts(own)
    for what, given in _facts(files).items():
        has = facts.get(what, given)
        if given and given != has:
            yield f"{what}: {given} in the files, and {has or 'not set'} in the runtime"


def _facts(section: Section) -> Mapping[str, str]:
    """Return what can differ; empty where it is not set."""
    words = {True: "on", False: "off", None: ""}
    return {
        "runtimes": ", ".join(sorted({*section.programs} - _BUILT_IN)) or "none",
        "default runtime": section.default,
        "CDI": words[section.cdi],
        GIVES_DEVICES: words[section.gives_devices],
        "directories of CDI": ", ".join(section.cdi_dirs),
        **{f"program of {name}": one for name, one in section.programs.items()},
        **{f"systemd of {name}": str(one).lower() for name, one in section.systemd.items()},
    }
