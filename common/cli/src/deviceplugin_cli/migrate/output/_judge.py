"""What our plugins say of the configuration that they would get."""

import io
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, Final, cast

from deviceplugin._config.loading import load
from deviceplugin._config.settings import dump
from deviceplugin.errors import ConfigError
from deviceplugin.kit.configuration import resource_name_problem
from deviceplugin.kit.hosting import Hosted
from deviceplugin_cli.migrate.output._deployments import Deployment
from deviceplugin_cli.migrate.output._text import to_yaml

REFUSED: Final = "the result would be refused: report this, with the input"
_OPERATOR: Final = "deviceplugin-operator"
_BY_VARIABLE: Final = {"aliases": "DP_ALIASES"}
"""ConfigMaps of components that are not configurations, and the setting that names their file."""


@cache
def hosted(plugin: str) -> Hosted[Any] | None:
    """Return a plugin that is installed here; None if it is not, or cannot be imported."""
    for entry in entry_points(group="deviceplugin.plugins", name=plugin):
        try:
            found: Hosted[Any] = entry.load()()
        except ImportError:
            return None
        return found
    return None


def defaults(plugin: str) -> Mapping[str, Any]:
    """Return the settings of a plugin that is given none; empty if it is not installed."""
    found = hosted(plugin)
    return {} if found is None else dump(found.settings())


def judge(deployment: Deployment) -> bool:
    """Return whether the plugin was asked: it is installed.

    Raises:
        ConfigError: It would not start, in its own words.
    """
    plugin = hosted(deployment.migration.plugin)
    if plugin is None:
        return False
    with tempfile.TemporaryDirectory() as folder:
        try:
            for file, variables in _files(deployment, Path(folder)):
                _read(plugin, file, variables)
        except ConfigError as error:
            said = str(error).replace(f"{folder}/", "")
            raise ConfigError(f"{said}\n{deployment.name}: {REFUSED}") from None
    return True


def _read(plugin: Hosted[Any], file: Path, variables: Mapping[str, str]) -> None:
    settings = load(plugin.settings, flags={}, file=file, environ=variables)
    for name in plugin.resources(settings) if plugin.resources else ():
        if problem := resource_name_problem(name.replace("*", "x")):
            raise ConfigError(f"{name!r} {problem}")


def _files(deployment: Deployment, folder: Path) -> Iterator[tuple[Path, Mapping[str, str]]]:
    """Yield each configuration that the plugin may get, written as a file, and its variables."""
    migration = deployment.migration
    # What a Secret or the node has is known when the plugin starts.
    unknown = {one["name"] for one in deployment.made.comparison.container.get("env", ())}
    variables = {
        name: value
        for name, value in migration.variables.items()
        if name not in {*unknown, "DP_CONFIG"}
    }
    main = folder / "config.yaml"
    main.write_text(to_yaml(deployment.configuration), encoding="utf-8")
    others: list[Path] = []
    for name, data in migration.config_maps.items():
        for number, (key, text) in enumerate(data.items()):
            # A key of a ConfigMap is a file's name, but nobody has checked that.
            path = folder / f"{name}-{number}{Path(key).suffix[:8]}"
            path.write_text(text, encoding="utf-8")
            if name in _BY_VARIABLE:
                variables[_BY_VARIABLE[name]] = str(path)
            else:
                others.append(path)
    for path in (main, *others):
        yield path, variables


def judge_objects(text: str) -> bool:
    """Return whether the operator was asked for its opinion of objects: it is installed.

    Raises:
        ConfigError: It would refuse one, in its own words.
    """
    check = _operator()
    if check is None:
        return False
    said, status = io.StringIO(), 0
    with tempfile.NamedTemporaryFile("w", encoding="utf-8", suffix=".yaml") as file:
        file.write(text)
        file.flush()
        with redirect_stdout(io.StringIO()), redirect_stderr(said):
            try:
                check(["check", file.name])
            except SystemExit as done:
                status = int(done.code or 0)
    if status:
        words = said.getvalue().replace(f"{_OPERATOR}: {file.name}: ", "").strip()
        raise ConfigError(f"{words}\n{REFUSED}")
    return True


def _operator() -> Callable[[Sequence[str]], object] | None:
    """Return the operator's command; None if it is not installed, or lacks something."""
    for entry in entry_points(group="console_scripts", name=_OPERATOR):
        try:
            return cast("Callable[[Sequence[str]], object]", entry.load())
        except ImportError:
            return None
    return None
