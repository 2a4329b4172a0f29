"""Report what a plugin of this repository still lacks of common/docs/new-plugin.md.

    .venv/bin/python build/checklist.py [PLUGIN...]

Without names, it checks all plugins. It exits with 1 if one lacks something. The template is not
deployed, because it only exists to be copied.
"""

import re
import sys
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
NOT_DEPLOYED: Final = frozenset({"template"})


def plugins(root: Path = ROOT) -> list[str]:
    """Return the names of all plugins."""
    return sorted(path.name for path in (root / "plugins").iterdir() if path.is_dir())


def missing(plugin: str, root: Path = ROOT) -> list[str]:
    """Return what ``plugin`` lacks: a message for each, with what to add and where."""
    found = [*_of_package(plugin, root), *_of_lists(plugin, root)]
    if plugin not in NOT_DEPLOYED:
        found += [*_of_deployment(plugin, root), *_of_files(plugin, root)]
        found += _of_operator(plugin, root)
    return found


def _of_package(plugin: str, root: Path) -> Iterator[str]:
    folder, package = root / "plugins" / plugin, f"deviceplugin_{plugin}"
    project = folder / "pyproject.toml"
    if not project.is_file():
        yield f"plugins/{plugin}/pyproject.toml: add it; that of plugins/template is an example"
        return
    scripts = tomllib.loads(_text(project)).get("project", {}).get("scripts", {})
    if f"{plugin}-device-plugin" not in scripts:
        yield f"plugins/{plugin}/pyproject.toml: add the command {plugin}-device-plugin to scripts"
    if not (folder / f"src/{package}/__init__.py").is_file():
        yield f"plugins/{plugin}/src/{package}/__init__.py: add the package"
    if not (folder / f"src/{package}/py.typed").is_file():
        yield f"plugins/{plugin}/src/{package}/py.typed: add it, empty: the types are public"
    if not _text(folder / "README.md").strip():
        yield f"plugins/{plugin}/README.md: add a page: what it is, how it is run, its settings"
    own = [*folder.glob("tests/test_*.py"), *root.glob(f"tests/plugins/{plugin}/test_*.py")]
    if not own:
        yield f"plugins/{plugin}/tests: add tests, on the simulated kubelet"


def _of_lists(plugin: str, root: Path) -> Iterator[str]:
    workspace = tomllib.loads(_text(root / "pyproject.toml"))
    if f"plugins/{plugin}/src" not in workspace["tool"]["mypy"]["mypy_path"]:
        yield f'pyproject.toml: add "plugins/{plugin}/src" to mypy_path'
    if f"| [{plugin}](plugins/{plugin}/README.md) |" not in _text(root / "README.md"):
        yield f"README.md: add a row for {plugin} to the table of plugins"


def _of_deployment(plugin: str, root: Path) -> Iterator[str]:
    place = f"deployments/{plugin}/kustomization.yaml"
    text = _text(root / place)
    if not text:
        yield f"{place}: add it; that of deployments/gopher is an example"
    elif not re.search(rf"^    newName: {plugin}-device-plugin$", text, re.MULTILINE):
        yield f"{place}: add the image, with newName: {plugin}-device-plugin"


def _of_files(plugin: str, root: Path) -> Iterator[str]:
    wanted = {
        f"demo/examples/{plugin}/pod.yaml": "a pod that asks for a device",
        f"demo/examples/{plugin}/README.md": "what the example needs and what one will see",
        f"e2e/cases/{plugin}.py": "its case of the end to end suite",
    }
    for place, what in wanted.items():
        if not _text(root / place).strip():
            yield f"{place}: add {what}; that of gopher is an example"


def _of_operator(plugin: str, root: Path) -> Iterator[str]:
    """Yield what is missing of a plugin that DevicePlugin objects can name: all or nothing."""
    wanted = {
        "operator/pyproject.toml": (f'"deviceplugin-{plugin}"', "a dependency"),
        "build/operator.Dockerfile": (rf" plugins/{plugin}\b", "it to the wheels of the image"),
        f"deployments/operator/samples/{plugin}.yaml": (rf"plugin: {plugin}\n", "an object"),
        "deployments/operator/crd/deviceplugins.yaml": (
            rf"- {plugin}\n",
            "its settings: python -m deviceplugin_operator.crd --write",
        ),
    }
    lacks = {
        place: what
        for place, (part, what) in wanted.items()
        if not re.search(part, _text(root / place))
    }
    if len(lacks) < len(wanted):
        yield from (f"{place}: add {what}, for the operator" for place, what in lacks.items())


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.is_file() else ""


def main(words: Sequence[str]) -> int:
    """Print what is missing; 1 if anything is."""
    if unknown := sorted({*words} - {*plugins()}):
        sys.stderr.write(f"checklist.py: no folder in plugins/: {', '.join(unknown)}\n")
        return 2
    lines = [f"{one}: {line}" for one in words or plugins() for line in missing(one)]
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    return 1 if lines else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
