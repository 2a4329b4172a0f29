"""The checks that installed plugins bring: what they do wrong is a finding, and costs no other."""

from collections.abc import Iterable, Sequence
from importlib.metadata import EntryPoint, entry_points
from inspect import getdoc
from itertools import islice
from typing import Any, Final

from deviceplugin._platform.hooks import HookFailedError, Hooks, HookTimeoutError
from deviceplugin.checks import Finding, Node, unknown
from deviceplugin.errors import DevicePluginError

GROUP: Final = "deviceplugin.doctor"
"""Entry points of packages; the name of each is that of its check."""
_PATIENCE: Final = 5
"""Times ``--timeout`` that a plugin's check may take."""
_TITLE_TIMEOUT: Final = 10.0
"""Seconds that importing it for its title may take."""
_MOST: Final = 1000
"""Findings that are taken of one check."""


class PluginCheck:
    """A check of a plugin, whose code is imported when it is needed first."""

    def __init__(self, entry: EntryPoint) -> None:
        self._entry = entry
        self._hooks = Hooks()
        self.name = entry.name

    @property
    def title(self) -> str:
        """The first line of its docstring, or why it cannot be known."""
        try:
            look = self._hooks.call(self.name, self._entry.load, timeout=_TITLE_TIMEOUT)
        except DevicePluginError as error:
            return f"cannot be imported: {error}"
        return (getdoc(look) or "").partition("\n")[0].removesuffix(".")

    def look(self, node: Node) -> Iterable[Finding]:
        """Return what it finds, with what went wrong as the last, within a limit of time.

        Raises:
            OSError: As the plugin's code raised it.
        """
        found: list[Finding] = []
        timeout = _PATIENCE * node.timeout
        try:
            self._hooks.call(self.name, self._collect, node, found, timeout=timeout)
        except HookFailedError as error:
            if isinstance(error.__cause__, OSError):
                raise error.__cause__ from None
            return [*found, self._failed(error)]
        except DevicePluginError as error:
            return [*found, self._failed(error)]
        return found

    def _collect(self, node: Node, found: list[Finding]) -> None:
        look: Any = self._entry.load()
        for finding in islice(look(node), _MOST):
            if not isinstance(finding, Finding):
                raise TypeError(f"yields {type(finding).__name__} where a Finding belongs")
            found.append(finding)

    def _failed(self, error: DevicePluginError) -> Finding:
        package = self._entry.dist
        assert package is not None  # it was found in one
        name = f"{package.name} {package.version}"
        if isinstance(error, HookTimeoutError):
            return unknown(name, f"its check takes too long: {error}", "--timeout gives it longer.")
        do = f"install {name} with all that it needs; if it is, tell those who make it."
        return unknown(name, f"its check fails: {error}", do)


def plugin_checks() -> Sequence[PluginCheck]:
    """Return the checks of the installed plugins by name; nothing of theirs is imported yet."""
    found = entry_points(group=GROUP)
    return [PluginCheck(entry) for entry in sorted(found, key=lambda entry: entry.name)]
