"""The plugin to create: its files, and the words for the placeholders in them."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from typing import Final

from deviceplugin._app.dra_settings import driver_of
from deviceplugin._config.names import resource_name_problem
from deviceplugin.errors import ConfigError

_NAME: Final = re.compile(r"[a-z][a-z0-9]*")
_LONGEST_NAME: Final = 20
_LONGEST_RESOURCE: Final = 48
"""With this limit, no line of the created files exceeds 100 characters."""
_TAKEN: Final = frozenset({"base", "common", "components", "plugins", "template", "workspace"})
_ENTRIES: Final = """
[project.entry-points."deviceplugin.plugins"]
{name} = "deviceplugin_{name}.__main__:hosted"
"""
_HOSTED: Final = '''def hosted() -> Hosted[Settings]:
    """Return the plugin for ``device-plugins`` and for the operator."""
    resources, owned = ["{resource}"], {{"directory": MOUNTED}}
    return Hosted(_made, Settings, lambda _settings: resources, owned)


def _made(settings: Settings) -> {plugin}:
    return {plugin}(settings.directory)


'''
_WORD: Final = re.compile(r"\{\{(\w+)\}\}")


@dataclass(frozen=True, slots=True)
class Subject:
    """The plugin to create; raises ``ConfigError`` if its name or resource is not valid."""

    name: str
    """Its command is ``<name>-device-plugin``, its package ``deviceplugin_<name>``."""
    resource: str
    version: str = "0.1.0"
    is_here: bool = False
    """Whether it is a plugin of the framework's repository, where all packages are its own."""

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name) or len(self.name) > _LONGEST_NAME:
            raise ConfigError(
                f"name {self.name!r} is not a lower-case letter and up to {_LONGEST_NAME - 1} "
                "lower-case letters and digits, as in lamp"
            )
        if self.name in _TAKEN:
            raise ConfigError(f"name {self.name!r} is taken: choose another")
        if problem := resource_name_problem(self.resource):
            raise ConfigError(f"--resource {self.resource!r} is not valid: {problem}")
        if len(self.resource) > _LONGEST_RESOURCE:
            raise ConfigError(
                f"--resource {self.resource!r} has more than {_LONGEST_RESOURCE} characters: use "
                "a shorter one, and change it in the created files"
            )

    @property
    def words(self) -> Mapping[str, str]:
        plugin = f"{self.name.capitalize()}Plugin"
        imports = [
            "from deviceplugin_testing.fixture import Kubelet",
            f"from deviceplugin_{self.name} import {plugin}",
        ]
        return {
            "name": self.name,
            "class": plugin,
            "framework": version("deviceplugin"),
            "imports": "\n".join(sorted(imports)) if self.is_here else "\n\n".join(imports),
            "entries": _ENTRIES.format(name=self.name),
            "hosting": "from deviceplugin.kit.hosting import MOUNTED, Hosted\n",
            "hosted": _HOSTED.format(resource=self.resource, plugin=plugin),
            "resource": self.resource,
            "driver": driver_of(self.resource),
            "version": self.version,
            "nodes": self.name,
            "thing": "a_device",
            "summary": f"Advertise /dev/{self.name}* as {self.resource}.",
            "what": '\n    """Every such device node is a device."""\n',
            "how": '\n        """Return what is there now."""',
            "description": f"A Kubernetes device plugin for the device nodes /dev/{self.name}*",
        }


def fill(text: str, words: Mapping[str, str]) -> str:
    """Return ``text`` with each ``{{word}}`` replaced; raise ``KeyError`` for an unknown one."""
    return _WORD.sub(lambda found: words[found[1]], text)


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
