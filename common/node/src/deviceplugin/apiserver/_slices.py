"""The ResourceSlices of one DRA driver on one node."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from deviceplugin._platform.api_errors import ApiServerError, ForbiddenError
from deviceplugin._platform.clock import MONOTONIC, Clock
from deviceplugin.apiserver._client import ApiServer, Object
from deviceplugin.apiserver._credentials import claims_in
from deviceplugin.apiserver._watch import Watch

_PATH: Final = "/apis/resource.k8s.io/v1/resourceslices"
_SILENCE: Final = 240.0
"""Seconds without a byte after which a watch is resumed. Servers send bookmarks each minute."""


_SPREAD: Final = 5.0
"""Seconds within which the drivers of all nodes resume watches that have ended together. Of 5,000
nodes, 1,000 do so in each second."""


class ResourceSlices:
    """The slices of ``driver`` on ``node``. Thread-safe. Watches wait by ``clock``."""

    def __init__(self, api: ApiServer, driver: str, node: str, *, clock: Clock = MONOTONIC) -> None:
        self._api = api
        self._clock = clock
        self._node = node
        self._query = {"fieldSelector": f"spec.nodeName={node},spec.driver={driver}"}

    def owner(self) -> Mapping[str, Any] | None:
        """Return a reference to the Node, with which its slices are removed.

        The token of a pod has the UID of its node. Without that the Node is read; None if that is
        not allowed.
        """
        claims = self._claims().get("kubernetes.io")
        node = claims.get("node") if isinstance(claims, dict) else None
        if isinstance(node, dict) and node.get("name") == self._node and node.get("uid"):
            return self._reference(node["uid"])
        try:
            found = self._api.get(f"/api/v1/nodes/{self._node}")
        except ForbiddenError:
            return None
        return self._reference(found["metadata"]["uid"])

    def list(self) -> tuple[dict[str, Object], str]:
        """Return all slices by name, and the version of the list."""
        page = self._api.list(_PATH, self._query)
        return {item["metadata"]["name"]: item for item in page.items}, page.version

    def create(self, one: Object) -> Object:
        """Create a slice and return it."""
        return self._api.create(_PATH, one)

    def try_out(self, one: Object) -> Object:
        """Return what creating a slice would, without creating it."""
        return self._api.create(_PATH, one, dry_run=True)

    def replace(self, one: Object) -> Object:
        """Replace the slice of the same name, UID and version, and return it."""
        return self._api.replace(f"{_PATH}/{one['metadata']['name']}", one)

    def delete(self, name: str, uid: str) -> None:
        """Delete a slice, unless another has its name now."""
        self._api.delete(f"{_PATH}/{name}", uid=uid)

    def watch(
        self,
        changed: Callable[[dict[str, Object], str], None],
        failed: Callable[[ApiServerError], None],
    ) -> Watch:
        """Return a watch that calls ``changed`` with what ``list`` returns, and with each change.

        ``failed`` is called with each error, before the next attempt.
        """
        watch = Watch(
            self._api,
            _PATH,
            self._query,
            changed=lambda slices: changed(slices, watch.version),
            failed=failed,
            silence=_SILENCE,
            spread=_SPREAD,
            clock=self._clock,
        )
        return watch

    def _claims(self) -> Object:
        try:
            return claims_in(self._api.credentials.token())
        except (OSError, ValueError):
            return {}

    def _reference(self, uid: str) -> Mapping[str, Any]:
        return {"apiVersion": "v1", "kind": "Node", "name": self._node, "uid": uid}
