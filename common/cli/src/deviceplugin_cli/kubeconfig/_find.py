"""Finding the API server from where a program runs."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from deviceplugin.apiserver._client import ApiServer
from deviceplugin_cli.kubeconfig._file import files_of
from deviceplugin.errors import ConfigError


def find_api_server(files: Sequence[Path] = (), *, context: str = "", **options: Any) -> ApiServer:
    """Return the API server of ``ApiServer.of_kubeconfig``, or this pod's without a kubeconfig.

    Raises:
        ConfigError: There is neither, or something in the kubeconfig is wrong.
    """
    looked = files_of(os.environ)
    if files or context or any(path.exists() for path in looked):
        return ApiServer.of_kubeconfig(files, context=context, **options)
    try:
        return ApiServer.of_pod(**options)
    except ConfigError as error:
        raise ConfigError(f"no kubeconfig {', '.join(map(str, looked))}, and {error}") from None
