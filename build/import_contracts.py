"""Check the import contracts of the workspace and of its plugins.

    .venv/bin/python build/import_contracts.py [ARGUMENTS of lint-imports]

import-linter does not support wildcards in the names of packages. Here, `deviceplugin_*` in
pyproject.toml stands for the package of each folder of plugins/. The contracts in the
pyproject.toml of a plugin, and of the operator, are checked too.
"""

import configparser
import sys
import tempfile
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NoReturn

from importlinter.cli import lint_imports_command

ROOT: Final = Path(__file__).parents[1]
EACH_PLUGIN: Final = "deviceplugin_*"

Section = Mapping[str, Any]


def packages(root: Path = ROOT) -> list[str]:
    """Return the packages of the plugins, sorted."""
    return sorted(path.parent.name for path in root.glob("plugins/*/src/*/__init__.py"))


def contracts(root: Path = ROOT) -> list[Section]:
    """Return the contracts of the workspace and those of its members, without wildcards."""
    members = [
        *root.glob("operator/pyproject.toml"),
        *sorted(root.glob("plugins/*/pyproject.toml")),
    ]
    sections = [_section(path) for path in (root / "pyproject.toml", *members)]
    found = [contract for section in sections for contract in section.get("contracts", ())]
    return [
        {key: _filled(value, packages(root)) for key, value in contract.items()}
        for contract in found
    ]


def configuration(root: Path = ROOT) -> configparser.ConfigParser:
    """Return the configuration for import-linter."""
    names = packages(root)
    session = {**_section(root / "pyproject.toml")}
    session.pop("contracts")
    parser = configparser.ConfigParser(interpolation=None)
    parser["importlinter"] = {k: _text(_filled(v, names)) for k, v in session.items()}
    for number, contract in enumerate(contracts(root)):
        parser[f"importlinter:{number}"] = {k: _text(value) for k, value in contract.items()}
    return parser


def _section(path: Path) -> Section:
    found: Section = tomllib.loads(path.read_text(encoding="utf-8"))
    return found.get("tool", {}).get("importlinter", {})  # type: ignore[no-any-return]


def _filled(value: Any, names: Sequence[str]) -> Any:
    if not isinstance(value, list):
        return value
    return [name for one in value for name in (names if one == EACH_PLUGIN else [one])]


def _text(value: Any) -> str:
    return "".join(f"\n{one}" for one in value) if isinstance(value, list) else str(value)


def main(words: Sequence[str]) -> NoReturn:
    """Run lint-imports with ``words``, and exit as it does."""
    with tempfile.NamedTemporaryFile("w", suffix=".ini", encoding="utf-8") as file:
        configuration().write(file)
        file.flush()
        lint_imports_command(["--config", file.name, *words])
        raise AssertionError("lint-imports exits")


if __name__ == "__main__":
    main(sys.argv[1:])
