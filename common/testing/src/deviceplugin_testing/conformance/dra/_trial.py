"""One run of the checks of a driver, and the state that they share."""

import threading
from collections.abc import Callable
from contextlib import ExitStack
from typing import Self, TypeVar

from deviceplugin_testing.conformance._check import NotApplicable
from deviceplugin_testing.conformance._findings import Findings
from deviceplugin_testing.conformance._limits import Limits
from deviceplugin_testing.conformance._subject import Subject
from deviceplugin_testing.conformance.dra._node import DraNode

_T = TypeVar("_T")


class DraTrial:
    """Starts the driver as often as checks need it, and shares results between checks."""

    def __init__(self, subject: Subject, limits: Limits, seed: int) -> None:
        self.subject = subject
        self.limits = limits
        self.seed = seed
        self.driver = subject.resource
        """The driver to check; empty until the first start has shown it."""
        self.hopeless = ""
        """Why the driver is not started any more; empty if it is."""
        self.over = threading.Event()
        """Set when the run is given up. Then whatever waits raises ``Abandoned``."""
        self._nodes = ExitStack()
        self._node: DraNode | None = None
        self._findings = Findings()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.discard()

    def node(self) -> DraNode:
        """Return a node on which the driver is up: the last one if it still is, or a new one.

        Raises:
            NotApplicable: The driver does not start.
        """
        if self._node is None or not self._node.up:
            return self.fresh()
        return self._node

    def fresh(self) -> DraNode:
        """Return a new node on which the driver is up; otherwise as ``node``."""
        if self.hopeless:
            raise NotApplicable(self.hopeless)
        self.discard()
        place = self._nodes.enter_context(self.subject.place())
        node = self._node = DraNode(self.subject, place, self.limits, self.seed, self.over)
        self._nodes.callback(node.close)
        node.start()
        node.launch()
        self.hopeless = node.wait_up()
        self.driver = node.driver
        if self.hopeless:
            raise NotApplicable(self.hopeless)
        return node

    def discard(self) -> None:
        """End the driver, its node and its cluster; the next check gets new ones."""
        self._node = None
        self._nodes.close()

    def once(self, scenario: Callable[["DraTrial"], _T]) -> _T:
        """Return what ``scenario`` found. It is played once in a run; see ``Findings.once``."""
        return self._findings.once(lambda: scenario(self), scenario)

    def once_before(self, scenario: Callable[["DraTrial"], _T]) -> _T:
        """Return what ``scenario`` found, for a check that only depends on it.

        Raises:
            NotApplicable: It failed. Another check reports that.
        """
        return self._findings.before(lambda: scenario(self), scenario)
