"""Random histories of hardware and of who gets it."""

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from random import Random

import deviceplugin as dp
from deviceplugin._attribution.ownership import Claim
from deviceplugin._attribution.poll_schedule import Key
from deviceplugin._attribution.stale import Given
from deviceplugin._discovery.found import Groups, discover
from deviceplugin.kit import pieces
from one_piece.world import World

Change = Callable[[], dp.Plugin]
"""Changes the machine or the configuration at random, and returns the plugin of now."""


@dataclass(frozen=True)
class Holder:
    """A pod or a claim with one device."""

    key: Key
    claim: Claim | None
    paths: frozenset[str]
    """The device nodes that it was given."""
    numbers: frozenset[object]
    """What it can open: their device numbers then."""
    share_of: str


class History:
    """One node, on which ``change`` makes something else of its hardware, by ``seed``."""

    restarts_anytime = False
    """Whether a path always means the same number, so that it may be gone at a restart."""

    def __init__(self, change: Change, seed: int) -> None:
        self.random = Random(seed)
        self._change = change
        self.world = World()
        self.holders: list[Holder] = []
        self.told: list[str] = []
        """What has happened, for the message of a failure."""
        self.refused = 0
        """How often somebody was refused because another has the hardware."""
        self._claims = 0
        self._groups: Groups = {}
        self._discover()

    def play(self, steps: int) -> None:
        """Let ``steps`` things happen, and check after each that no piece has two holders."""
        for _ in range(steps):
            action = self.random.choice(
                [self._discover, self._take, self._take, self._take, self._end, self._restart]
                + [self._switch] * (self.random.random() < 0.2)
            )
            action()

    def come_to_rest(self) -> None:
        """End all holders. Then nothing is kept from anybody."""
        while self.holders:
            self._end()
        assert [] == [name for name in self._groups if self.world.closed(name)]

    def _discover(self) -> None:
        plugin = self._change()
        self._groups, _ = discover(plugin)
        self.world.publish(self._groups)
        self.told.append(f"discovered {_keys(self._groups)}")

    def _take(self) -> None:
        """A pod or a claim wants a device that was healthy, before it was withheld or after."""
        taken = {one.key for one in self.holders}
        free = [
            key
            for key in _keys(self._groups)
            if key not in taken and self._groups[key[0]][key[1]].health
        ]
        if not free:
            return
        key = self.random.choice(free)
        device = self._groups[key[0]][key[1]]
        claim = self._new_claim() if self.world.ownership.mode == "dra" else None
        if claim:
            why = self.world.prepare(claim, key)
        else:
            why = self.world.allocate(key[1], resource=key[0])
        self.told.append(f"{key} wanted by {claim or 'a pod'}: {why or 'granted'}")
        self.refused += "held as" in why
        if not why:
            paths = frozenset(node.host_path for node in device.nodes)
            new = Holder(key, claim, paths, numbers_of(paths), device.share_of)
            self._check(new)
            self.holders.append(new)

    def _check(self, new: Holder) -> None:
        for old in self.holders:
            # A device that is divided while somebody has it is a share from then on.
            present = self._groups.get(old.key[0], {}).get(old.key[1])
            shared = new.share_of and new.share_of in {old.share_of, present and present.share_of}
            if new.numbers & old.numbers and not (shared and new.key[1] != old.key[1]):
                story = "\n".join(self.told)
                raise AssertionError(f"{new} has what {old} has\n{story}")

    def _new_claim(self) -> Claim:
        self._claims += 1
        return Claim("default", f"claim-{self._claims}", f"uid-{self._claims}")

    def _end(self) -> None:
        if not self.holders:
            return
        over = self.holders.pop(self.random.randrange(len(self.holders)))
        self.told.append(f"the end of {over.key}")
        if over.claim:
            self.world.ownership.unprepare(over.claim.uid)
        self._poll()

    def _poll(self) -> None:
        pods = [one for one in self.holders if one.claim is None]
        given = {one.key: Given(one.paths, [one.key]) for one in pods}
        self.world.pods(*(one.key for one in pods), recorded=given)

    def _restart(self) -> None:
        """Restart the process. What was given out is known by the paths that it had."""
        others = any(numbers_of(one.paths) != one.numbers for one in self.holders)
        if others and not self.restarts_anytime:
            return  # their paths say something else by now
        self.told.append("restart")
        self.world = World(self.world.ownership.mode)
        claims = {one.claim: [one.key] for one in self.holders if one.claim}
        given = {one.key: Given(one.paths, [one.key]) for one in self.holders}
        self.world.ownership.restore(claims, records=given.get)
        self._poll()
        self.world.publish(self._groups)

    def _switch(self) -> None:
        mode = "device-plugin" if self.world.ownership.mode == "dra" else "dra"
        if self.holders:
            return  # the handover has tests of its own
        self.world = World(mode)  # type: ignore[arg-type]
        self.world.publish(self._groups)
        self.told.append(f"protocol {mode}")


def _keys(groups: Groups) -> list[Key]:
    """Return the devices in the order of their discovery: ids may contain a temporary folder."""
    return [(name, one.id) for name, devices in groups.items() for one in devices.values()]


def numbers_of(paths: Iterable[str]) -> frozenset[object]:
    """Return what paths lead to that belongs to one device: device numbers, or files."""
    return frozenset(_number(path) for path in paths if pieces.named_by([path]))


def _number(path: str) -> object:
    try:
        return os.stat(path).st_rdev or os.path.realpath(path)  # noqa: PTH116
    except OSError:
        return path
