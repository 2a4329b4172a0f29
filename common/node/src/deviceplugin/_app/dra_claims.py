"""The ResourceClaims that a driver reads, and whose status it writes."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from deviceplugin._attribution.ownership import Claim
from deviceplugin.apiserver import ApiServer


class Claims:
    """The ResourceClaims of the API server. ``wanted`` is called for each that is read."""

    def __init__(self, api: ApiServer, wanted: Callable[[], None]) -> None:
        self._api = api
        self._wanted = wanted

    def get(self, namespace: str, name: str, timeout: float = 0.0) -> Mapping[str, Any]:
        """Return the claim, within ``timeout`` seconds; ApiServerError if it cannot be read now."""
        self._wanted()
        return self._api.get(_path(namespace, name), timeout=timeout)

    def edit_status(self, claim: Claim, operations: Sequence[dict[str, Any]]) -> Mapping[str, Any]:
        """Change the status of the claim by a JSON patch; ApiServerError if that fails."""
        return self._api.edit(f"{_path(claim.namespace, claim.name)}/status", operations)


def _path(namespace: str, name: str) -> str:
    return f"/apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaims/{name}"
