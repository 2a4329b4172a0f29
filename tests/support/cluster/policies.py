"""Refusals by what an administrator has installed, in the API server's words."""

from collections.abc import Callable
from typing import Final

from cluster.kinds import Kind, Object
from cluster.store import RefusedError

Policy = Callable[[str, Kind, Object, bool], None]
"""Refuses a CREATE, UPDATE or DELETE of an object; the last says whether it is a dry run."""
Wrong = Callable[[Object], bool]
NAME: Final = "guard"


def _by(name: str, kind: Kind, found: Object) -> str:
    return f'{kind.resource} "{found["metadata"]["name"]}" is forbidden: {name}'


def admission_policy(
    kind: Kind, wrong: Wrong, verbs: str = "CREATE UPDATE", *, in_dry_run: bool = True
) -> Policy:
    """Return a ValidatingAdmissionPolicy: 422, with its words as the cause."""

    def ask(verb: str, about: Kind, found: Object, dry: bool) -> None:
        if about == kind and verb in verbs.split() and (in_dry_run or not dry) and wrong(found):
            said = f"ValidatingAdmissionPolicy '{NAME}' with binding '{NAME}' denied request"
            message = _by(f"{said}: not allowed here", kind, found)
            raise RefusedError(422, "Invalid", message, [("", message)])

    return ask


def quota(kind: Kind, wrong: Wrong) -> Policy:
    """Return a ResourceQuota that is used up: 403."""

    def ask(verb: str, about: Kind, found: Object, _dry: bool) -> None:
        if about == kind and verb == "CREATE" and wrong(found):
            said = f"exceeded quota: {NAME}, requested: count/{kind.resource}=1"
            raise RefusedError(403, "Forbidden", _by(said, kind, found))

    return ask


def webhook(kind: Kind, wrong: Wrong, code: int, reason: str, said: str) -> Policy:
    """Return a webhook that answers with a code of its own, or not in time: that is 500."""

    def ask(verb: str, about: Kind, found: Object, _dry: bool) -> None:
        if about == kind and verb != "DELETE" and wrong(found):
            raise RefusedError(code, reason, said)

    return ask
