"""The framework's own repository: recognising it, and the line that a plugin adds there."""

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from deviceplugin.errors import ConfigError
from deviceplugin_testing.tools.new._subject import Subject
from deviceplugin_testing.tools.new._writing import Edit

_PROJECT: Final = "deviceplugin-workspace"
_PATHS: Final = re.compile(r'^  "plugins/(\w+)/src",\n', re.MULTILINE)


def is_workspace(folder: Path) -> bool:
    """Return whether ``folder`` is the root of the framework's repository."""
    try:
        text = (folder / "pyproject.toml").read_text(encoding="utf-8")
        project = tomllib.loads(text).get("project")
    except (OSError, ValueError):
        return False
    known = isinstance(project, dict) and project.get("name") == _PROJECT
    return known and (folder / "plugins").is_dir()


def version(folder: Path) -> str:
    """Return the version of all packages of the workspace."""
    text = (folder / "common/node/pyproject.toml").read_text(encoding="utf-8")
    found: str = tomllib.loads(text)["project"]["version"]
    return found


def edits(subject: Subject) -> Mapping[Path, Edit]:
    """Return the edits of the workspace's files: mypy takes no wildcard for its paths.

    An edit raises ``ConfigError`` if it does not find the place for its line.
    """
    return {Path("pyproject.toml"): lambda text: _with_path(text, subject.name)}


def _with_path(text: str, name: str) -> str:
    found, line = list(_PATHS.finditer(text)), f'  "plugins/{name}/src",\n'
    if not found:
        raise ConfigError('pyproject.toml: mypy_path has no line like "plugins/template/src"')
    if name in {one[1] for one in found}:
        raise ConfigError(f"pyproject.toml: mypy_path has plugins/{name}/src already: remove it")
    after = [one.end() for one in found if one[1] < name]
    place = after[-1] if after else found[0].start()
    return text[:place] + line + text[place:]
