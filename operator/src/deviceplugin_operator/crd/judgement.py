"""What the plugins' own code says of settings, as files."""

import re
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

import deviceplugin as dp
from deviceplugin.kit.configuration import resource_name_problem
from deviceplugin_operator.crd.catalogue import PLUGINS
from deviceplugin_operator.names import MAX_CONFIG


def written(document: Mapping[str, Any]) -> str:
    """Return ``document`` as YAML."""
    return str(yaml.safe_dump(dict(document), sort_keys=False)) if document else "{}\n"


def size_problem(config: str) -> str:
    """Return why ``config`` is too large for the annotation of a pod, or an empty string."""
    fits = len(config) <= MAX_CONFIG  # it is ASCII
    return "" if fits else f"has {len(config)} bytes as a file, of at most {MAX_CONFIG}"


def judged(plugin: str, config: str) -> tuple[str, ...]:
    """Return the resources that ``plugin`` offers with the file ``config``.

    Raises:
        ConfigError: The errors that the plugin would print when it starts, or a resource that no
            kubelet takes.
    """
    hosted = PLUGINS[plugin]
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "config.yaml")
        file.write_text(config, encoding="utf-8")
        try:
            resources = tuple(hosted.offered(hosted.settings.of_file(file)))
        except dp.ConfigError as error:
            # Users see their object, not this file.
            said = re.sub(rf"^{re.escape(str(file))}(:\d+)?: ", "", str(error), flags=re.MULTILINE)
            raise dp.ConfigError(said) from None
    for name in resources:
        if problem := resources_problem(name):
            raise dp.ConfigError(f"{name!r} {problem}")
    return resources


def resources_problem(name: str) -> str:
    """Return what is wrong with a resource, or with several with ``*``, or an empty string."""
    problem = resource_name_problem(name.replace("*", "x"))
    return problem and f"is not a resource, such as example.com/lamp: {problem}"
