"""One run of the checks, and the state that they share."""

import random
import shutil
import subprocess
import time
from typing import cast

from typing_extensions import override

from deviceplugin_testing.conformance._check import CheckRun, Failed, NotApplicable
from deviceplugin_testing.conformance._node import PluginNode
from deviceplugin_testing.conformance._subject import Limits, Subject, fill


class Trial(CheckRun):
    """Starts the plugin as often as checks need it, and shares results between checks."""

    def __init__(self, subject: Subject, limits: Limits, seed: int) -> None:
        super().__init__(subject, limits, seed)
        self.resource = subject.resource
        """The resource to check; empty until the first start has shown it."""
        self.others: frozenset[str] = frozenset()
        """Resources of the plugin that are not checked."""
        self.start_took = 0.0
        """Seconds that its last start took."""
        self.crashes: list[str] = []
        """The reasons of all crashes of kubelets in the run."""
        self._node: PluginNode | None = None
        self._first: PluginNode | None = None

    def beside(self) -> "Trial":
        other = Trial(self.subject, self.limits, self.seed)
        other.resource, other.others = self.resource, self.others
        other.crashes, other.over, other._findings = self.crashes, self.over, self._findings
        return other

    def comes_up(self) -> bool:
        """Start the plugin, and return whether that succeeded; ``hopeless`` has the reason."""
        self._bring_up()
        return not self.hopeless

    # Nodes

    def first(self) -> PluginNode:
        """Return the first node, even if the plugin did not start on it or has ended."""
        if self._first is None:
            self._bring_up()
        return cast("PluginNode", self._first)

    def node(self) -> PluginNode:
        """Return a node on which the plugin is up: the last one if it still is, or a new one.

        Raises:
            NotApplicable: The plugin does not start.
        """
        if self._node is None or not self._node.up:
            self._bring_up()
        if self.hopeless:
            raise NotApplicable(self.hopeless)
        return cast("PluginNode", self._node)

    def fresh(self) -> PluginNode:
        """Return a new node on which the plugin is up; see ``node``."""
        if not self.hopeless:
            self.discard()
        return self.node()

    def empty(self) -> PluginNode:
        """Return a new node on which neither kubelet nor plugin runs yet."""
        if self.hopeless:
            raise NotApplicable(self.hopeless)
        self.discard()
        return self._make()

    @override
    def discard(self) -> None:
        if self._node is not None:
            self.crashes += self._node.kubelet.crashes
        self._node = None
        super().discard()

    def _make(self) -> PluginNode:
        place = self._nodes.enter_context(self.subject.place())
        node = PluginNode(self.subject, place, self.limits, self.seed, self.over)
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

    # Shared by checks

    def rng(self, name: str) -> random.Random:
        """Return a random generator that depends only on the seed and ``name``."""
        return random.Random(f"{self.seed} {name}")  # noqa: S311 - reproducible on purpose

    def trigger(self, node: PluginNode) -> None:
        """Run the user's command that changes the devices; without one, raise ``NotApplicable``."""
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
