"""The API server of a kubeconfig, as kubectl finds it, or of the pod."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from deviceplugin.apiserver import ApiServer
from deviceplugin.errors import ConfigError
from deviceplugin_cli.kubeconfig._file import connection, files_of


def api_server_of(files: Sequence[Path] = (), context: str = "", **options: Any) -> ApiServer:
    """Return the API server of a context of kubeconfig files, as kubectl does.

    Args:
        files: By default those that the environment variable KUBECONFIG names, or
            ``~/.kube/config``. Of what several files say, the first counts.
        context: By default the current one.
        options: Those of ``ApiServer``.

    Raises:
        ConfigError: There is none, or something in it is wrong or not supported.
    """
    url, user = connection(files, context)
    return ApiServer(url, user, **options)


def find_api_server(files: Sequence[Path] = (), *, context: str = "", **options: Any) -> ApiServer:
    """Return the API server of ``api_server_of``, or this pod's without a kubeconfig.

    Raises:
        ConfigError: There is neither, or something in the kubeconfig is wrong.
    """
    looked = files_of(os.environ)
    if files or context or any(path.exists() for path in looked):
        return api_server_of(files, context, **options)
    try:
        return ApiServer.of_pod(**options)
    except ConfigError as error:
        raise ConfigError(f"no kubeconfig {', '.join(map(str, looked))}, and {error}") from None
