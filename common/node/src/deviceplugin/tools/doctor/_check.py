"""Checks of the doctor itself and of installed plugins, and running them one after the other.

A failing check of a plugin is a finding, and does not affect others.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import EntryPoint, entry_points
from inspect import getdoc
from itertools import islice
from typing import Any, Final, NamedTuple

from deviceplugin._app.patience import waiting
from deviceplugin._platform.hooks import HookFailedError, Hooks, HookTimeoutError
from deviceplugin.checks import Finding, Node, unknown
from deviceplugin.errors import ConfigError, DevicePluginError
from deviceplugin.tools.agent import _sections
from deviceplugin.tools.agent._sections import places_in

GROUP: Final = "deviceplugin.doctor"
"""The group of entry points. The name of an entry point is that of its check."""
_PATIENCE: Final = 5
"""How long a plugin's check may take, as a multiple of ``--timeout``."""
_IMPORT_TIMEOUT: Final = 60.0
"""Most seconds that importing a check may take. On a busy machine that is longer than the check."""
_MOST: Final = 1000
"""Most findings of one check."""


@dataclass(frozen=True, slots=True)
class Check:
    """Examines one topic, within a few seconds, and changes nothing."""

    name: str
    title: str
    run: Callable[[Node], Iterable[Finding]]
    """It may raise OSError, which becomes a finding."""


class PluginCheck:
    """A check of a plugin. Its code is imported when it is first needed."""

    def __init__(self, entry: EntryPoint) -> None:
        self._entry = entry
        self._hooks = Hooks()
        self.name = entry.name

    @property
    def title(self) -> str:
        """The first line of its docstring, or why it cannot be read."""
        try:
            check = self._hooks.call(self.name, self._entry.load, timeout=_IMPORT_TIMEOUT)
        except DevicePluginError as error:
            return f"cannot be imported: {error}"
        return (getdoc(check) or "").partition("\n")[0].removesuffix(".")

    def run(self, node: Node) -> Iterable[Finding]:
        """Return its findings, within a time limit; of its errors, only an OSError is raised.

        Another error is the last finding.
        """
        found: list[Finding] = []
        timeout = _PATIENCE * node.timeout
        try:
            self._hooks.call("import", self._entry.load, timeout=_IMPORT_TIMEOUT)
            self._hooks.call(self.name, self._collect, node, found, timeout=timeout)
        except DevicePluginError as error:
            if isinstance(error, HookFailedError) and isinstance(error.__cause__, OSError):
                raise error.__cause__ from None
            return [*found, self._failed(error)]
        return found

    def _collect(self, node: Node, found: list[Finding]) -> None:
        check: Any = self._entry.load()
        for finding in islice(check(_own(node, self.name)), _MOST):
            if not isinstance(finding, Finding):
                raise TypeError(f"yields {type(finding).__name__} where a Finding belongs")
            found.append(finding)

    def _failed(self, error: DevicePluginError) -> Finding:
        package = self._entry.dist
        assert package is not None  # it was found in one
        name = f"{package.name} {package.version}"
        if isinstance(error, HookTimeoutError):
            do = "raise --timeout, or try again when the machine is less busy."
            return unknown(name, f"its check takes too long: {error}", do)
        do = f"install {name} with all its dependencies; if they are there, report it as a bug."
        return unknown(name, f"its check fails: {error}", do)


def _own(node: Node, plugin: str) -> Node:
    """Return the node with the plugin's own configuration, if the file is that of several."""
    if node.config is None or not node.config.is_file():
        return node
    try:
        shared = places_in(node.config, _sections.names())
    except ConfigError:
        return node  # of which the check says what is wrong
    if not shared:
        return node
    section = shared.get(plugin)
    return replace(node, section=section, config=node.config if section else None)


def plugin_checks() -> Sequence[PluginCheck]:
    """Return the checks of the installed plugins, sorted by name, without importing them."""
    found = entry_points(group=GROUP)
    return [PluginCheck(entry) for entry in sorted(found, key=lambda entry: entry.name)]


AnyCheck = Check | PluginCheck


class Result(NamedTuple):
    """A finding, and the check that made it."""

    check: str
    finding: Finding


def run(node: Node, checks: Sequence[AnyCheck]) -> Iterator[Result]:
    """Run ``checks`` on ``node`` and yield their findings. An OSError becomes a finding."""
    for check in checks:
        try:
            with waiting("deviceplugin doctor", f"the check {check.name}"):
                findings = list(check.run(node))
        except OSError as error:
            path = error.filename or check.title
            do = "run as root." if isinstance(error, PermissionError) else ""
            findings = [unknown(str(path), f"cannot be examined: {error.strerror or error}", do)]
        except ModuleNotFoundError as error:  # of an extra
            do = "pip install urllib3."
            findings = [unknown(check.title, f"needs {error.name}, which is not installed", do)]
        for finding in findings:
            yield Result(check.name, finding)
