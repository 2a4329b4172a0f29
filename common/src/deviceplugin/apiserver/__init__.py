"""The one client of the Kubernetes API, for what runs beside plugins: Events, eviction, fleets.

Objects are plain dictionaries, as JSON has them, so nothing that a newer server knows is lost.
A plugin itself never asks the API server, and a node that runs only plugins does not load this.
Needs the extra ``deviceplugin[cluster]``.
"""

from deviceplugin.apiserver._account import SERVICE_ACCOUNT, Account
from deviceplugin.apiserver._client import ApiServer, Page
from deviceplugin.apiserver._errors import (
    ApiServerError,
    ConflictError,
    ForbiddenError,
    GoneError,
    InvalidError,
    NotFoundError,
    UnavailableError,
)
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
    "UnavailableError",
    "Watch",
]
