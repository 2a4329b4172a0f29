"""One run of the checks of a driver, and the state that they share."""

from typing import Any

from typing_extensions import override

from deviceplugin_testing.conformance._check import NO_DEVICES, CheckRun, Failed, NotApplicable
from deviceplugin_testing.conformance._subject import Limits, Subject
from deviceplugin_testing.conformance.dra._node import Claim, DraNode, Offered
from deviceplugin_testing.simulator import CallError


def prepared(node: DraNode, *claims: Claim) -> list[Any]:
    """Prepare ``claims``, and return the answers; raise ``Failed`` if one is an error."""
    answers = node.prepare(*claims)
    for answer in answers:
        if answer.error:
            raise Failed(f"refused: {answer.error}")
    return answers


def released(node: DraNode, *claims: Claim) -> None:
    """Unprepare ``claims``; raise ``Failed`` if that is an error."""
    for answer in node.unprepare(*claims):
        if answer.error:
            raise Failed(f"not unprepared: {answer.error}")


def refused(node: DraNode, claim: Claim, what: str) -> str:
    """Prepare a claim that must be refused, and return how it was; raise ``Failed`` if it was not.

    An error of the whole call is a refusal too, as it is for the kubelet, but not the end of the
    driver or of the time.
    """
    try:
        (answer,) = node.prepare(claim)
    except CallError as error:
        if "code = Unavailable" in str(error):
            node.observe(node.limits.within)  # tells if the driver has ended
        if any(f"code = {code}" in str(error) for code in ("Unavailable", "DeadlineExceeded")):
            raise
        return f"refused {what}: {error}"
    if not answer.error:
        node.unprepare(claim)
        raise Failed(f"prepared {what}")
    return f"refused {what}: {answer.error}"


def exclusive(node: DraNode) -> list[Offered]:
    """Return the devices that one claim has alone; raise ``NotApplicable`` if there is none."""
    found = [device for device in node.devices if device.consumed is None]
    if not found:
        raise NotApplicable("all its devices are shared" if node.devices else NO_DEVICES)
    return found


class DraTrial(CheckRun):
    """Starts the driver as often as checks need it, and shares results between checks."""

    def __init__(self, subject: Subject, limits: Limits, seed: int) -> None:
        super().__init__(subject, limits, seed)
        self.driver = subject.resource
        """The driver to check; empty until the first start has shown it."""
        self._node: DraNode | None = None

    def node(self) -> DraNode:
        """Return the last node if its driver is still up, or a new one."""
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

    @override
    def discard(self) -> None:
        self._node = None
        super().discard()
