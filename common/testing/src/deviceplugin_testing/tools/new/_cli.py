"""The command line of ``deviceplugin new``."""

import argparse
import re
import sys
import tomllib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from deviceplugin.errors import ConfigError
from deviceplugin.tools import _command_line
from deviceplugin_testing.tools.new._subject import REPOSITORY, WORKSPACE, Subject, made
from deviceplugin_testing.tools.new._writing import write

_PROJECT: Final = "deviceplugin-workspace"
_PATHS: Final = re.compile(r'^  "plugins/(\w+)/src",\n', re.MULTILINE)
_DESCRIPTION: Final = """\
Create a working plugin called NAME: its package, test, README, image and deployment. It
advertises the device nodes /dev/NAME* until you change that.

In the root of this framework's repository, it becomes a plugin there: folders in plugins/,
deployments/, tests/plugins/ and demo/examples/, and a line in pyproject.toml. Elsewhere, or with
--directory, it becomes a separate repository."""

_EXAMPLES: Final = """\
examples:
  deviceplugin new lamp                                 a repository in the folder lamp
  deviceplugin new lamp --resource example.org/lamp     with that resource name
  deviceplugin new lamp --directory ~/src/lamp-plugin   in that folder
  deviceplugin new lamp --dry-run                       only list what would be created

Exit status: 0 if everything was created, 2 if the command line is wrong or it cannot be created;
then nothing is left behind."""

_NEXT_HERE: Final = """
What to do next:
  make setup                                   install the new package
  make generate                                add its settings to the operator's
  .venv/bin/python build/checklist.py {name}   run it, and all tests of it

Then write discover() in plugins/{name}/src/deviceplugin_{name}/__init__.py, and continue with the
checklist, common/docs/new-plugin.md.
"""

_NEXT_ELSEWHERE: Final = """
What to do next, in {folder} and in the virtual environment of this command:
  git init
  pip install --editable .
  pytest

Then write discover() in src/deviceplugin_{name}/__init__.py, and continue with the tutorial,
plugins/template/README.md of the framework, or the checklist, common/docs/new-plugin.md.
"""


def main(argv: Sequence[str]) -> int:
    """Run ``deviceplugin new`` with the arguments ``argv`` and return its exit status.

    0 if the plugin was created, 2 for a wrong command line or if it cannot be created.
    """
    return _command_line.run(_parser(), argv, _make)


def _make(options: argparse.Namespace) -> int:
    subject = Subject(options.name, options.resource or f"example.com/{options.name}")
    try:
        here = Path.cwd()
        if options.directory is None and _is_workspace(here):
            _in_workspace(here, subject, dry=options.dry_run)
        else:
            _elsewhere(options.directory or Path(subject.name), subject, dry=options.dry_run)
    except OSError as error:
        place = error.filename or "the current directory"
        raise ConfigError(f"{place}: {error.strerror}; nothing was created") from error
    return 0


def _is_workspace(folder: Path) -> bool:
    try:
        text = (folder / "pyproject.toml").read_text(encoding="utf-8")
        project = tomllib.loads(text).get("project")
    except (OSError, ValueError):
        return False
    known = isinstance(project, dict) and project.get("name") == _PROJECT
    return known and (folder / "plugins").is_dir()


def _version(folder: Path) -> str:
    text = (folder / "common/node/pyproject.toml").read_text(encoding="utf-8")
    found: str = tomllib.loads(text)["project"]["version"]
    return found


def _with_path(text: str, name: str) -> str:
    """Return pyproject.toml with the plugin in mypy_path: mypy takes no wildcard there."""
    found, line = list(_PATHS.finditer(text)), f'  "plugins/{name}/src",\n'
    if not found:
        raise ConfigError('pyproject.toml: mypy_path has no line like "plugins/template/src"')
    if name in {one[1] for one in found}:
        raise ConfigError(f"pyproject.toml: mypy_path has plugins/{name}/src already: remove it")
    after = [one.end() for one in found if one[1] < name]
    place = after[-1] if after else found[0].start()
    return text[:place] + line + text[place:]


def _in_workspace(root: Path, subject: Subject, *, dry: bool) -> None:
    if (root / "plugins" / subject.name).exists():
        raise ConfigError(f"plugins/{subject.name}: exists already; choose another name")
    subject = replace(subject, version=_version(root), is_here=True)
    new, project = made(WORKSPACE, subject.words), Path("pyproject.toml")
    edits = {project: lambda text: _with_path(text, subject.name)}
    write(root, new, edits, dry=dry)
    _report([*new], [project], dry=dry)
    if not dry:
        sys.stdout.write(_NEXT_HERE.format(name=subject.name))


def _elsewhere(folder: Path, subject: Subject, *, dry: bool) -> None:
    try:
        folder = folder.expanduser()
    except RuntimeError as error:
        raise ConfigError(f"{folder}: there is no such user; nothing was created") from error
    if folder.is_dir() and any(folder.iterdir()):
        raise ConfigError(f"{folder}: is not empty; name another place with --directory")
    new = made(REPOSITORY, subject.words)
    write(folder, new, {}, dry=dry)
    _report([folder / path for path in new], [], dry=dry)
    if not dry:
        sys.stdout.write(_NEXT_ELSEWHERE.format(name=subject.name, folder=folder))


def _report(created: Sequence[Path], edited: Sequence[Path], *, dry: bool) -> None:
    would = "would be " if dry else ""
    lines = [f"{would}created  {path}" for path in sorted(created)]
    lines += [f"{would}edited   {path}" for path in sorted(edited)]
    sys.stdout.write("".join(f"{line}\n" for line in lines))


def _parser() -> argparse.ArgumentParser:
    parser = _command_line.parser("new", _DESCRIPTION, _EXAMPLES)
    add = parser.add_argument
    add("name", metavar="NAME", help="lower-case letters and digits, such as lamp")
    add("--resource", metavar="RESOURCE", help="the resource to advertise (example.com/NAME)")
    add("--directory", type=Path, metavar="DIR", help="create a separate repository in DIR")
    add("--dry-run", action="store_true", help="list what would be created, and create nothing")
    return parser
