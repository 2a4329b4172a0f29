"""The files of a plugin, in a separate repository or in the framework's."""

from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Final

from deviceplugin_testing.tools.new._subject import Subject, fill

PACKAGE: Final[Mapping[str, str]] = {
    "pyproject.toml": "pyproject.toml",
    "src/deviceplugin_{{name}}/__init__.py": "plugin.py",
    "src/deviceplugin_{{name}}/__main__.py": "main.py",
    "src/deviceplugin_{{name}}/py.typed": "py.typed",
    "tests/test_{{name}}.py": "test.py",
}
"""A plugin's package: the path of each file, and its template."""
REPOSITORY: Final[Mapping[str, str]] = {
    **PACKAGE,
    ".dockerignore": "ignored",
    ".gitignore": "ignored",
    "Dockerfile": "Dockerfile",
    "README.md": "readme.md",
    "deploy/{{name}}.yaml": "manifests.yaml",
    "deploy/pod.yaml": "pod.yaml",
    "ruff.toml": "ruff.toml",
}
WORKSPACE: Final[Mapping[str, str]] = {
    **{f"plugins/{{{{name}}}}/{place}": file for place, file in PACKAGE.items()},
    "plugins/{{name}}/README.md": "plugin-readme.md",
    "deployments/components/node-{{name}}/kustomization.yaml": "node-component.yaml",
    "deployments/operator/samples/{{name}}.yaml": "sample.yaml",
    "deployments/{{name}}/config.yaml": "config.yaml",
    "deployments/{{name}}/kustomization.yaml": "kustomization.yaml",
    "demo/examples/{{name}}/README.md": "example-readme.md",
    "demo/examples/{{name}}/pod.yaml": "pod.yaml",
    "tests/plugins/{{name}}/case.py": "case.py",
    "tests/plugins/{{name}}/deployment.toml": "deployment.toml",
}

_FILES: Final = files("deviceplugin_testing.tools.new") / "files"


def made(table: Mapping[str, str], words: Mapping[str, str]) -> Mapping[Path, str]:
    """Return the content of each file of ``table``, by its path."""
    return {
        Path(fill(place, words)): fill((_FILES / f"{file}.in").read_text("utf-8"), words)
        for place, file in table.items()
    }


def repository(subject: Subject) -> Mapping[Path, str]:
    """Return the files of a separate repository."""
    return made(REPOSITORY, subject.words)


def workspace(subject: Subject) -> Mapping[Path, str]:
    """Return the files of a plugin in the framework's repository."""
    return made(WORKSPACE, subject.words)
