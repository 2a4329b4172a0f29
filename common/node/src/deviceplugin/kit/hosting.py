"""Let ``device-plugins`` run a plugin beside others, and objects of the operator name it.

A package names a function that returns a ``Hosted`` as an entry point:

    [project.entry-points."deviceplugin.plugins"]
    lamp = "deviceplugin_lamp:hosted"
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

from deviceplugin._config.settings import Settings
from deviceplugin.errors import ConfigError

MOUNTED: Final = "the manifest mounts it"
"""Why an object of the operator cannot set a path."""
STRICT: Final = {"on-invalid-entry": "an object with a wrong entry is refused before"}
"""Why an object cannot have wrong entries skipped."""
S = TypeVar("S", bound=Settings)


@dataclass(frozen=True)
class Hosted(Generic[S]):
    """A plugin that can run beside others: what ``deviceplugin.main`` gets for one by itself.

    ``make`` is called at the start, and again after each change of the plugin's settings. What it
    raises concerns this plugin only. What all objects of the plugin share, such as a driver's
    library, belongs to ``make``: the function of the entry point is called once in a process.
    """

    make: Callable[[S], object]
    settings: type[S]
    resources: Callable[[S], Iterable[str]] | None = None
    """Returns the resources that settings lead to; a name that ends in ``*`` stands for several.

    Raises ``ConfigError`` for what the plugin refuses only when it starts. None: objects of the
    operator cannot name the plugin.
    """
    owned: Mapping[str, str] = field(default_factory=dict[str, str])
    """Settings that such an object cannot set, and why, beyond those of every plugin."""
    renamed: Mapping[str, str] = field(default_factory=dict[str, str])
    """Settings that have another key in the file."""


def acceptance(name: str) -> Callable[[Sequence[str]], int]:
    """Return the command ``accept`` of the plugin ``name``, for ``deviceplugin.main``.

    It is in ``deviceplugin-testing``, which no image has, and needs an ``Acceptance`` of the plugin
    (`deviceplugin.checks`) as an entry point of the group ``deviceplugin.accept``.
    """

    def accept(argv: Sequence[str]) -> int:
        """Try this machine's devices as containers would get them, and write a report."""
        from importlib.metadata import entry_points  # a plugin that serves does not need it

        found = [*entry_points(group="deviceplugin.commands", name="accept")]
        if not found:
            what = "needs deviceplugin-testing: in a checkout, pip install ./common/testing"
            raise ConfigError(what)
        status: int = found[0].load()([name, *argv])
        return status

    return accept
