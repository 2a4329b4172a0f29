"""What clients ask to discover the kinds, and their own rights."""

from collections.abc import Iterable

from deviceplugin_testing.simulator._control_plane.api_server.access import Access, User, Wanted
from deviceplugin_testing.simulator._control_plane.kinds import Kind, Object

VERSION = "1.36"
REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
_VERBS = ("create", "delete", "get", "list", "patch", "update", "watch")


def documents(kinds: Iterable[Kind]) -> dict[str, Object]:
    """Return what is at the addresses of groups and versions, by address."""
    minor = VERSION.partition(".")[2]
    found: dict[str, Object] = {
        "/version": {"major": "1", "minor": minor, "gitVersion": f"v{VERSION}.2"},
        "/readyz": {},
        "/livez": {},
    }
    for kind in kinds:
        usual: Object = {"kind": "APIResourceList", "apiVersion": "v1"}
        place = found.setdefault(
            kind.root, {**usual, "groupVersion": kind.api_version, "resources": []}
        )
        place["resources"] += [_resource(kind, part) for part in _parts(kind)]
    return found


def _parts(kind: Kind) -> list[str]:
    return ["", "/status"] if kind.has_status else [""]


def _resource(kind: Kind, part: str) -> Object:
    return {
        "name": f"{kind.plural}{part}",
        "singularName": "" if part else kind.name.lower(),
        "kind": kind.name,
        "namespaced": kind.namespaced,
        "verbs": ["get", "patch", "update"] if part else [*_VERBS],
    }


def review(access: Access, kinds: Iterable[Kind], user: User, asked: Object) -> Object:
    """Return whether ``user`` may do what a SelfSubjectAccessReview asks."""
    wanted = asked.get("spec", {}).get("resourceAttributes", {})
    allowed = any(
        access.allows(
            user,
            Wanted(
                wanted.get("verb", ""),
                kind,
                wanted.get("namespace", ""),
                wanted.get("name", ""),
                wanted.get("subresource", ""),
            ),
        )
        for kind in kinds
        if (kind.group, kind.plural) == (wanted.get("group", ""), wanted.get("resource"))
    )
    return {
        "kind": "SelfSubjectAccessReview",
        "apiVersion": "authorization.k8s.io/v1",
        "metadata": {},
        "spec": asked.get("spec", {}),
        "status": {"allowed": allowed},
    }
