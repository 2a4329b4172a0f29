"""Calls for claims, and what the driver must answer."""

from typing import Any

from deviceplugin_testing.conformance._check import Failed, NotApplicable
from deviceplugin_testing.conformance.dra._node import Claim, DraNode
from deviceplugin_testing.conformance.dra._pools import Offered
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
        raise NotApplicable("all its devices are shared")
    return found
