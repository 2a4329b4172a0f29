"""Creating Events on the API server."""

from typing import Any, Final

from deviceplugin.apiserver import ApiServer, ConflictError, ForbiddenError
from deviceplugin.tools.events._notice import NAMESPACE

_PATH: Final = f"/api/v1/namespaces/{NAMESPACE}/events"
_ADVICE: Final = {
    401: "is the token of the component events mounted?",
    403: "apply the ClusterRole and its binding of the component events",
}


def create_event(api: ApiServer, event: dict[str, Any]) -> None:
    """Create ``event``, unless one of that name exists.

    Raises:
        InvalidError: The API server will never accept it.
        ApiServerError: It could not be created now.
    """
    try:
        api.create(_PATH, event)
    except ConflictError:
        return
    except ForbiddenError as error:
        advice = _ADVICE.get(error.status)
        raise ForbiddenError(f"{error}; {advice}", status=error.status, after=error.after) from None
