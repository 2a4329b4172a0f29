"""Who asks, what they may do, and what was asked."""

import math
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from deviceplugin_testing.simulator._control_plane.kinds import (
    CLUSTER_ROLE,
    CLUSTER_ROLE_BINDING,
    Kind,
    Object,
)
from deviceplugin_testing.simulator._control_plane.refusals import RefusedError
from deviceplugin_testing.simulator._control_plane.store import Store
from deviceplugin_testing.simulator._monitor import Monitor

ACCOUNT: Final = "system:serviceaccount:"


@dataclass(frozen=True, slots=True)
class User:
    """Who asks. Administrators may do everything; the others, what ClusterRoles allow."""

    name: str
    is_admin: bool = False


ADMIN: Final = User("system:admin", is_admin=True)


class ApiRequest(NamedTuple):
    """A request that the API server has answered, or whose watch has begun."""

    user: str
    verb: str
    """``get``, ``list``, ``watch``, ``create``, ``update``, ``patch`` or ``delete``."""
    group: str
    resource: str
    """With the subresource, such as ``resourceclaims/status``."""
    namespace: str
    name: str
    code: int
    """The status of the answer."""
    client: str = ""
    """Its header ``User-Agent``."""


class Wanted(NamedTuple):
    """What a request is going to do."""

    verb: str
    kind: Kind
    namespace: str
    name: str
    part: str

    @property
    def resource(self) -> str:
        return f"{self.kind.plural}/{self.part}" if self.part else self.kind.plural


class Access:
    """The users by their tokens, and their rights by the ClusterRoles of ``store``.

    As long as there is no token, everybody is an administrator.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = Monitor()
        self._users: dict[str, User] = {}

    def grant(self, token: str, user: User) -> None:
        with self._lock:
            self._users[token] = user

    def revoke(self, token: str) -> None:
        with self._lock:
            self._users[token] = User("")

    def user(self, header: str) -> User:
        """Return who asks, by the header ``Authorization``; raise ``RefusedError``."""
        with self._lock:
            if not self._users:
                return ADMIN
            found = self._users.get(header.removeprefix("Bearer ").strip())
        if found is None or not found.name:
            raise RefusedError(401, "Unauthorized", "Unauthorized")
        return found

    def check(self, user: User, wanted: Wanted) -> None:
        """Raise ``RefusedError`` unless ``user`` may do that."""
        if self.allows(user, wanted):
            return
        group = f' in API group "{wanted.kind.group}"'
        scope = (
            f' in the namespace "{wanted.namespace}"'
            if wanted.namespace
            else " at the cluster scope"
        )
        name = f' "{wanted.name}"' if wanted.name else ""
        problem = (
            f'{wanted.kind.resource}{name} is forbidden: User "{user.name}" cannot {wanted.verb} '
            f'resource "{wanted.resource}"{group}{scope}'
        )
        details = {"group": wanted.kind.group, "kind": wanted.kind.plural, "name": wanted.name}
        raise RefusedError(403, "Forbidden", problem, details)

    def allows(self, user: User, wanted: Wanted) -> bool:
        return user.is_admin or any(_permits(rule, wanted) for rule in self._rules(user))

    def _rules(self, user: User) -> Iterable[Object]:
        roles = {one["metadata"]["name"]: one for one in self._store.list(CLUSTER_ROLE)}
        for binding in self._store.list(CLUSTER_ROLE_BINDING):
            if user.name in {_subject(one) for one in binding.get("subjects", ())}:
                yield from roles.get(binding["roleRef"]["name"], {}).get("rules", ())


def _subject(subject: Mapping[str, str]) -> str:
    if subject["kind"] == "ServiceAccount":
        return f"{ACCOUNT}{subject['namespace']}:{subject['name']}"
    return subject["name"]


def _permits(rule: Mapping[str, list[str]], wanted: Wanted) -> bool:
    named = rule.get("resourceNames", [])
    return (
        _has(rule.get("verbs", []), wanted.verb)
        and _has(rule.get("apiGroups", []), wanted.kind.group)
        and _has(rule.get("resources", []), wanted.resource)
        and (not named or wanted.name in named)
    )


def _has(names: list[str], name: str) -> bool:
    return "*" in names or name in names


Matches = Callable[[Wanted], bool]
RETRY: Final = "retryAfterSeconds"
_STARTING: Final = "storage is (re)initializing"
"""Of the details of a refusal: when to come back."""


@dataclass(slots=True)
class _Refusal:
    error: RefusedError
    left: float
    matches: Matches


@dataclass(slots=True)
class Faults:
    """Thread-safe; everything takes effect with the next request."""

    latency: float = 0.0
    """Seconds before each answer."""
    _lock: Monitor = field(default_factory=Monitor)
    _refusals: deque[_Refusal] = field(default_factory=deque)

    def overload(
        self,
        times: float = math.inf,
        *,
        code: int = 429,
        after: int = 1,
        matches: Matches = lambda _wanted: True,
    ) -> None:
        """Refuse the next requests, so many ``times``, with ``Retry-After``."""
        reason = "TooManyRequests" if code == 429 else "ServiceUnavailable"  # noqa: PLR2004
        message = "the server has received too many requests and has asked us to try again later"
        error = RefusedError(code, reason, message, {RETRY: after})
        self.refuse(error, times, matches=matches)

    def start_caches(self, times: float = math.inf, *, after: int = 1) -> None:
        """Refuse lists and watches as an API server does whose watch caches are starting.

        Other requests go to its storage, as in Kubernetes 1.31 and later. There, so do lists with a
        limit and without selectors; here they are refused.
        """
        error = RefusedError(429, "TooManyRequests", _STARTING, {RETRY: after})
        self.refuse(error, times, matches=lambda wanted: wanted.verb in {"list", "watch"})

    def refuse(
        self, error: RefusedError, times: float = 1, *, matches: Matches = lambda _wanted: True
    ) -> None:
        """Refuse the next requests that match, so many ``times``."""
        with self._lock:
            self._refusals.append(_Refusal(error, times, matches))

    def end(self) -> None:
        """Answer as usual again."""
        with self._lock:
            self.latency = 0.0
            self._refusals.clear()

    def check(self, wanted: Wanted) -> None:
        """Raise what the request is refused with, if it is."""
        with self._lock:
            for refusal in self._refusals:
                if refusal.left > 0 and refusal.matches(wanted):
                    refusal.left -= 1
                    raise refusal.error
