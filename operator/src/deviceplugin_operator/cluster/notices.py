"""Events of objects, for ``kubectl describe``."""

import logging
import uuid
from datetime import UTC, datetime
from typing import Final

from deviceplugin.apiserver import ApiServer, ApiServerError
from deviceplugin_operator import names
from deviceplugin_operator.observed.seen import Object

log = logging.getLogger(__name__)

_PATH: Final = "/api/v1/namespaces/default/events"
"""Events of cluster-scoped objects are in this namespace."""
_LONGEST: Final = 1000


class Notices:
    """Creates Events. If that fails, the status still says the same."""

    def __init__(self, api: ApiServer) -> None:
        self._api = api

    def notify(self, about: Object, kind: str, reason: str, message: str) -> None:
        """Create an Event about an object."""
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        metadata = about["metadata"]
        event = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {
                "name": f"{metadata['name']}.{uuid.uuid4().hex[:12]}",
                "namespace": "default",
            },
            "involvedObject": {
                "apiVersion": f"{names.GROUP}/{names.VERSION}",
                "kind": names.KIND,
                "name": metadata["name"],
                "uid": metadata["uid"],
            },
            "type": kind,
            "reason": reason,
            "message": message[:_LONGEST],
            "source": {"component": "deviceplugin-operator"},
            "reportingComponent": "deviceplugin-operator",
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        }
        try:
            self._api.create(_PATH, event)
        except ApiServerError as error:
            log.info("event not created", extra={"reason": reason, "error": str(error)})
