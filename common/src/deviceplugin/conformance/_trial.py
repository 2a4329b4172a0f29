"""One run of the checks: what they share."""

import random
import shutil
import subprocess
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Self, TypeVar, cast

from deviceplugin.conformance._check import Failed, NotApplicable
from deviceplugin.conformance._findings import Findings
from deviceplugin.conformance._limits import Limits
from deviceplugin.conformance._node import Node
from deviceplugin.conformance._place import fill
from deviceplugin.conformance._subject import Subject

_T = TypeVar("_T")


class Trial:
    """Starts the plugin as often as checks need it, and keeps what they found for each other."""

    def __init__(self, subject: Subject, limits: Limits, seed: int) -> None:
        self.subject = subject
        self.limits = limits
        self.seed = seed
        self.resource = subject.resource
        """The resource that is checked; empty until a first start has shown it."""
        self.others: frozenset[str] = frozenset()
        """Resources of the plugin that are not checked."""
        self.hopeless = ""
        """Why the plugin is not started any more."""
        self.start_took = 0.0
        """Seconds that it took to come up, the last time."""
        self.crashes: list[str] = []
        """What killed a kubelet, in all of the run."""
        self._nodes = ExitStack()
        self._node: Node | None = None
        self._first: Node | None = None
        self.over = threading.Event()
        """Set where the run is given up: whatever waits in it raises ``Abandoned`` then."""
        self._findings = Findings()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.discard()

    def beside(self) -> "Trial":
        """Return another trial of the same run, whose plugin and kubelet are its own."""
        other = Trial(self.subject, self.limits, self.seed)
        other.resource, other.others = self.resource, self.others
        other.crashes, other.over, other._findings = self.crashes, self.over, self._findings
        return other

    def first_comes_up(self) -> bool:
        """Return whether the plugin came up when it was first started."""
        self.first()
        return not self.hopeless

    def comes_up(self) -> bool:
        """Start the plugin, and return whether it came up; ``hopeless`` says why not."""
        self._bring_up()
        return not self.hopeless

    # Nodes

    def first(self) -> Node:
        """Return the first node ever, whether the plugin came up on it or not, and maybe ended."""
        if self._first is None:
            self._bring_up()
        return cast("Node", self._first)

    def node(self) -> Node:
        """Return a node on which the plugin is up; a new one where the last is not fit any more.

        Raises:
            NotApplicable: It does not come up.
        """
        if self._node is None or not self._node.up:
            self._bring_up()
        if self.hopeless:
            raise NotApplicable(self.hopeless)
        return cast("Node", self._node)

    def fresh(self) -> Node:
        """Return a new node on which the plugin is up; see ``node``."""
        if not self.hopeless:
            self.discard()
        return self.node()

    def empty(self) -> Node:
        """Return a new node on which nothing runs yet, neither kubelet nor plugin."""
        if self.hopeless:
            raise NotApplicable(self.hopeless)
        self.discard()
        return self._make()

    def discard(self) -> None:
        """End the plugin and its kubelet; the next check gets new ones."""
        if self._node is not None:
            self.crashes += self._node.kubelet.crashes
        self._node = None
        self._nodes.close()

    def _make(self) -> Node:
        place = self._nodes.enter_context(self.subject.place())
        node = Node(self.subject, place, self.limits, self.seed, self.over)
        node.resource = self.resource
        self._nodes.callback(node.close)
        self._node = node
        return node

    def _bring_up(self) -> None:
        if self.hopeless:
            return
        self.discard()
        node = self._make()
        self._first = self._first or node
        node.kubelet.start()
        begin = time.monotonic()
        node.launch()
        self.hopeless = node.wait_up()
        self.start_took = time.monotonic() - begin
        if not self.resource and node.resource:
            self.resource = node.resource
            self.others = frozenset(r.resource for r in node.kubelet.lists()) - {self.resource}

    # What checks share

    def once(self, scenario: Callable[["Trial"], _T]) -> _T:
        """Return what ``scenario`` found, playing it once in a run; see ``Findings.once``."""
        return self._findings.once(lambda: scenario(self), scenario)

    def once_before(self, scenario: Callable[["Trial"], _T]) -> _T:
        """Return what ``scenario`` found, for a check that merely comes after it.

        Raises:
            NotApplicable: It failed; another check reports that.
        """
        return self._findings.before(lambda: scenario(self), scenario)

    def rng(self, name: str) -> random.Random:
        """Return random numbers that only the seed and ``name`` decide."""
        return random.Random(f"{self.seed} {name}")  # noqa: S311 - reproducible on purpose

    def trigger(self, node: Node) -> None:
        """Run the user's command that changes the devices.

        Raises:
            NotApplicable: There is none.
            Failed: It fails.
        """
        if not self.subject.trigger:
            raise NotApplicable("no --trigger-change")
        command = fill(self.subject.trigger, node.placeholders)
        try:
            result = subprocess.run(  # noqa: S603 - the user's own command
                [shutil.which("sh") or "/bin/sh", "-c", command],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=self.limits.within,
                check=False,
            )
        except subprocess.TimeoutExpired as late:
            raise Failed(f"--trigger-change took more than {late.timeout:g} s") from late
        if result.returncode:
            raise Failed(
                f"--trigger-change ended with {result.returncode}: {result.stderr.strip()}"
            )
