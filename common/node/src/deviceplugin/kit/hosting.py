"""Let ``device-plugins`` run a plugin beside others, in one process.

A package names a function that returns a ``Hosted`` as an entry point:

    [project.entry-points."deviceplugin.plugins"]
    lamp = "deviceplugin_lamp:hosted"
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from deviceplugin._config.settings import Settings

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
