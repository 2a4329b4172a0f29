"""The objects of the stand-in for a cluster: the simulated cluster's store, with more kinds."""

from typing_extensions import override

from cluster.kinds import EVENT, KINDS, NAMESPACE, Kind, Object
from deviceplugin_testing.simulator._control_plane import store


class Store(store.Store):
    """See ``store.Store``; what is removed is gone at once, whoever has to clean up."""

    def __init__(self) -> None:
        super().__init__(KINDS)

    @override
    def create(self, kind: Kind, made: Object, *, dry_run: bool = False) -> Object:
        if kind == NAMESPACE:  # which stays until it is empty
            made = {**made, "metadata": {**made["metadata"], "finalizers": ["kubernetes"]}}
        return super().create(kind, made, dry_run=dry_run)

    def exists(self, kind: Kind, namespace: str, name: str) -> bool:
        return self.find(kind, namespace, name) is not None

    def remove(self, kind: Kind, namespace: str, name: str) -> Object:
        def edit(found: Object) -> None:
            found["metadata"].pop("finalizers", None)

        with self.changed:
            found = self.change(kind, namespace, name, edit)
            if self.exists(kind, namespace, name):
                found = self.delete(kind, namespace, name, 0)
            return found

    def wait(self, version: int, timeout: float) -> None:
        """Wait until anything is newer than ``version``."""
        self.changed.until(lambda: self.version > version, timeout)


def tell(store: Store, about: Object, reason: str, message: str) -> None:
    """Create an Event about an object, of which there is one for each reason."""
    metadata = about["metadata"]
    name = f"{metadata['name']}.{reason.lower()}"
    namespace = metadata.get("namespace", "default")
    if not store.exists(EVENT, namespace, name):
        made = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": name, "namespace": namespace},
            "involvedObject": {
                **{key: about[key] for key in ("apiVersion", "kind")},
                **{key: metadata[key] for key in ("name", "uid")},
                "namespace": namespace,
            },
            "reason": reason,
            "message": message,
            "type": "Warning",
            "count": 1,
            "firstTimestamp": store.now(),
            "lastTimestamp": store.now(),
        }
        store.create(EVENT, made)
