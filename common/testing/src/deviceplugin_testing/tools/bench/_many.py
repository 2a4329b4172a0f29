"""A plugin with any number of devices and resources, to measure the core itself.

``python -m deviceplugin_testing.tools.bench._many --devices 10000``. The health of the first device
of each resource changes whenever a file is added to or removed from ``--directory``.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from typing_extensions import override

import deviceplugin as dp


@dataclass(frozen=True, kw_only=True)
class ManySettings(dp.Settings):
    devices: int = 1
    """Number of devices of each resource. Their ids have 34 characters, almost as many as a UUID.
    """
    resources: int = 1
    """Number of resources. The first one is ``bench.example/many-000``."""
    directory: Path = Path("/nonexistent")
    """Directory in which an odd number of files makes the first device of each resource unhealthy.
    """
    keep: bool = False
    """Whether to keep the objects until something changes. Otherwise each discovery creates all of
    them again, as most plugins do."""


class ManyPlugin(dp.Plugin):
    def __init__(self, settings: ManySettings) -> None:
        self._devices = settings.devices
        self._resources = settings.resources
        self._directory = settings.directory
        self._kept = list(self._make()) if settings.keep else None
        self.watch_paths = (settings.directory,)

    @override
    def discover(self) -> Iterable[dp.Device]:
        is_odd = self._directory.is_dir() and len(list(self._directory.iterdir())) % 2
        first = dp.Health.unhealthy("the number of files is odd") if is_odd else dp.Health()
        if self._kept is None:
            return self._make(first)
        devices = list(self._kept)
        devices[:: self._devices] = [replace(d, health=first) for d in devices[:: self._devices]]
        return devices

    def _make(self, first: dp.Health = dp.Health()) -> Iterator[dp.Device]:  # noqa: B008 - frozen
        """Yield all devices; ``first`` is the health of the first one of each resource."""
        healths = [first] + [dp.Health()] * (self._devices - 1)
        for number in range(self._resources):
            resource = f"bench.example/many-{number:03}"
            for index, health in enumerate(healths):
                yield dp.Device(
                    f"device-{number:03}-{index:06}-0123456789abcdef", resource=resource,
                    health=health,
                )  # fmt: skip


if __name__ == "__main__":
    dp.main(ManyPlugin, settings=ManySettings)
