"""Whether there is a network behind functions, and which of them the node itself depends on."""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from deviceplugin.kit.sysfs import Sysfs, SysfsError
from deviceplugin_rdma.nics import Nic

_ACTIVE: Final = "4:"
_INFINIBAND: Final = "InfiniBand"
_RECOVERING: Final = "6:"
"""The physical state of a port that trains its link anew after errors."""
_ONE_LANE: Final = "(1X "
"""In the rate of a port. InfiniBand's cables have two lanes or more: the others have failed."""
_READ: Final = ("state", "phys_state", "rate", "link_layer")
_FLAGS: Final = re.compile("0x([0-9a-f]{1,8})")
_IS_UP: Final = 1
"""The flag of an interface that somebody has switched on."""

_LOWER: Final = "lower_"
"""Links in the directory of a bond, bridge or VLAN to what it is made of."""
_DEPTH: Final = 8


class Links:
    """Reads the state of links, and notices without events that one has changed."""

    def __init__(self, sysfs: Sysfs) -> None:
        self._sysfs = sysfs
        self._read: dict[Path, str] = {}
        """What was read, by file or directory."""

    def look(self, nics: Mapping[str, Nic], counting: Collection[str]) -> None:
        """Read what ``nics`` have, by address, as it is now.

        States of links are read only of those that are ``counting``: each is a question to the
        card's firmware, and a card can have a thousand functions.
        """
        paths = [
            path
            for nic in nics.values()
            for path in _paths(nic, self._sysfs, of_links=nic.address in counting)
        ]
        self._read = {path: self._text(path) for path in paths}

    def has_changed(self) -> bool:
        """Return whether anything is not as it was at the last look."""
        return any(self._text(path) != text for path, text in self._read.items())

    def _text(self, path: Path) -> str:
        try:
            if path.name in ("net", "infiniband"):
                return " ".join(self._sysfs.names(path))
            return self._sysfs.read(path)
        except SysfsError as error:
            return f"?{error}"

    def problem(self, nic: Nic, root: Nic | None, *, is_shared: bool) -> str:
        """Return why nothing can be reached through a function; empty if something can.

        A function that a pod gets for itself is switched on in the pod. So what counts is whether
        its physical function ``root`` has a cable; for InfiniBand, that its port is active.
        """
        if is_shared:
            return self._ports(nic)
        if root is None:
            return ""
        return self._ports(root) if root.link_type == "infiniband" else self._carrier(root)

    def wear(self, nic: Nic, root: Nic | None) -> Iterator[str]:
        """Yield why the links of a function are worse than they should be.

        They are the network's, of its physical function ``root`` if it has one, and the one to the
        CPU, which is that function's as well.
        """
        card = root or nic
        if lost := card.function.lost_lanes:
            yield f"PCIe link of {card.address}: {lost}"
        for state in _ports(card, self._sysfs):
            port = state.parent
            text = {name: self._read.get(port / name, "") for name in _READ}
            if not text["state"].startswith(_ACTIVE) or text["link_layer"] != _INFINIBAND:
                continue
            name = f"port {port.name} of {port.parents[1].name}"
            if text["phys_state"].startswith(_RECOVERING):
                yield f"{name}: its link recovers from errors"
            if _ONE_LANE in text["rate"]:
                yield f"{name}: one lane, {text['rate']}"

    def _ports(self, nic: Nic) -> str:
        """Return the states of ports of which none is active."""
        states = {path: self._read.get(path, "") for path in _ports(nic, self._sysfs)}
        if any(state.startswith(_ACTIVE) for state in states.values()):
            return ""
        return "; ".join(
            state[1:]
            if state.startswith("?")
            else f"port {path.parent.name} of {path.parents[2].name} is {state.partition(': ')[2]}"
            for path, state in states.items()
        )

    def _carrier(self, nic: Nic) -> str:
        """Return which interfaces are switched on and have no cable, if that is all of them."""
        states = {
            name: self._read.get(nic.folder / "net" / name / "carrier", "")
            for name in nic.interfaces
            if self._is_up(nic.folder / "net" / name / "flags")
        }
        if not states or any(state != "0" for state in states.values()):
            return ""
        return f"{', '.join(states)}: no carrier"

    def _is_up(self, path: Path) -> bool:
        flags = _FLAGS.fullmatch(self._read.get(path, ""))
        return flags is not None and bool(int(flags[1], 16) & _IS_UP)


def _paths(nic: Nic, sysfs: Sysfs, *, of_links: bool) -> Iterator[Path]:
    yield nic.folder / "net"
    yield nic.folder / "infiniband"
    if not of_links:
        return
    for name in nic.interfaces:
        yield from (nic.folder / "net" / name / what for what in ("carrier", "flags"))
    for state in _ports(nic, sysfs):
        yield from (state.with_name(name) for name in _READ)


def _ports(nic: Nic, sysfs: Sysfs) -> Sequence[Path]:
    folders = [nic.folder / "infiniband" / one / "ports" for one in nic.rdma]
    found: list[Path] = []
    for folder in folders:
        try:
            found += [folder / port / "state" for port in sysfs.names(folder)]
        except SysfsError:
            continue
    return found


def default_routes(proc_net: Path, sysfs: Sysfs) -> set[str]:
    """Return the interfaces with a default route, and those that bonds and the like are made of."""
    found: set[str] = set()
    level = {*_of_ipv4(proc_net / "route"), *_of_ipv6(proc_net / "ipv6_route")}
    for _ in range(_DEPTH):
        found |= level
        level = {below for one in level for below in _below(one, sysfs)} - found
    return found


def _of_ipv4(path: Path) -> Iterator[str]:
    for line in path.read_text(encoding="ascii").splitlines()[1:]:
        words = line.split()
        if words[1] == words[7] == "00000000":
            yield words[0]


def _of_ipv6(path: Path) -> Iterator[str]:
    try:
        lines = path.read_text(encoding="ascii").splitlines()
    except FileNotFoundError:  # no IPv6
        return
    for words in map(str.split, lines):
        if words[:2] == ["0" * 32, "00"]:
            yield words[-1]


def _below(name: str, sysfs: Sysfs) -> Iterator[str]:
    try:
        names = sysfs.kernel.names(sysfs.path(f"class/net/{name}"))
    except OSError:
        return
    yield from (one.removeprefix(_LOWER) for one in names if one.startswith(_LOWER))
