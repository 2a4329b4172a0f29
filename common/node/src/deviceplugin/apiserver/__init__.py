"""The client of the Kubernetes API, for programs beside plugins: Events, eviction, fleets.

Objects are plain dictionaries, as in JSON, so fields of newer servers are not lost. A plugin does
not call the API server unless it is told to, and a process that runs only plugins does not load
this. It needs the extra ``deviceplugin[cluster]``.
"""

from deviceplugin._config.quantities import devices_in
from deviceplugin._config.slices import has_shares, newest, shares, taint
from deviceplugin._platform.api_errors import (
    ApiServerError,
    ConflictError,
    ForbiddenError,
    GoneError,
    InvalidError,
    NotFoundError,
    UnavailableError,
)
from deviceplugin.apiserver._client import ApiServer, Page
from deviceplugin.apiserver._credentials import SERVICE_ACCOUNT, Account
from deviceplugin.apiserver._slices import ResourceSlices
from deviceplugin.apiserver._watch import Watch

__all__ = [
    "SERVICE_ACCOUNT",
    "Account",
    "ApiServer",
    "ApiServerError",
    "ConflictError",
    "ForbiddenError",
    "GoneError",
    "InvalidError",
    "NotFoundError",
    "Page",
    "ResourceSlices",
    "UnavailableError",
    "Watch",
    "devices_in",
    "has_shares",
    "newest",
    "shares",
    "taint",
]
