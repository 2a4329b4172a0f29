"""The framework's own repository: recognising it, and the line that a plugin adds there."""

import re
import tomllib
from pathlib import Path
from typing import Final

from deviceplugin.errors import ConfigError

_PROJECT: Final = "deviceplugin-workspace"
_PATHS: Final = re.compile(r'^  "plugins/(\w+)/src",\n', re.MULTILINE)


def is_workspace(folder: Path) -> bool:
    try:
        text = (folder / "pyproject.toml").read_text(encoding="utf-8")
        project = tomllib.loads(text).get("project")
    except (OSError, ValueError):
        return False
    known = isinstance(project, dict) and project.get("name") == _PROJECT
    return known and (folder / "plugins").is_dir()


def version(folder: Path) -> str:
    text = (folder / "common/node/pyproject.toml").read_text(encoding="utf-8")
    found: str = tomllib.loads(text)["project"]["version"]
    return found


def with_path(text: str, name: str) -> str:
    """Return pyproject.toml with the plugin's folder in mypy_path: mypy takes no wildcard there.

    Raises:
        ConfigError: There is no place for the line.
    """
    found, line = list(_PATHS.finditer(text)), f'  "plugins/{name}/src",\n'
    if not found:
        raise ConfigError('pyproject.toml: mypy_path has no line like "plugins/template/src"')
    if name in {one[1] for one in found}:
        raise ConfigError(f"pyproject.toml: mypy_path has plugins/{name}/src already: remove it")
    after = [one.end() for one in found if one[1] < name]
    place = after[-1] if after else found[0].start()
    return text[:place] + line + text[place:]
