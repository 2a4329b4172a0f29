"""The API server that is asked about a pod."""

from importlib.metadata import entry_points
from typing import Final

from deviceplugin.apiserver import ApiServer
from deviceplugin.errors import ConfigError

GROUP: Final = "deviceplugin.clusters"
"""The entry points of functions that return the API server that kubectl would ask.

The package for laptops has one, which nodes do not need.
"""
_NAME: Final = "deviceplugin-doctor"
_SECONDS: Final = 30.0
"""For an answer: a list of pods takes longer than a socket."""


def api_server(url: str = "") -> ApiServer:
    """Return the API server at ``url``, else that of a kubeconfig, else this pod's.

    Raises:
        ConfigError: There is none, or something in the kubeconfig is wrong.
    """
    if url:
        return ApiServer(url, timeout=_SECONDS, name=_NAME)
    for entry in entry_points(group=GROUP):
        found: ApiServer = entry.load()(timeout=_SECONDS, name=_NAME)
        return found
    try:
        return ApiServer.of_pod(timeout=_SECONDS, name=_NAME)
    except ConfigError as error:
        advice = "install common/cli of a checkout to use that of kubectl, or give --api-server URL"
        raise ConfigError(f"{error}; {advice}") from None
