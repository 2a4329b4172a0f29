"""Plugins that do what no plugin should, beside others in an agent.

``install`` makes a package of them, which an agent finds by ``PYTHONPATH``.
"""

import os
import sys
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from threading import Event
from typing import Any, Final

from typing_extensions import override

import deviceplugin as dp
from deviceplugin.kit.hosting import Hosted

DOMAIN: Final = "faulty.example.com"


class Faulty(dp.Plugin):
    """Has one device, unless a subclass does otherwise."""

    def __init__(self, _settings: dp.Settings) -> None:
        self.resource = f"{DOMAIN}/{type(self).__name__.lower()}"

    @override
    def discover(self) -> Iterable[dp.Device]:
        return [dp.Device("one")]


class Hangs(Faulty):
    @override
    def discover(self) -> Iterable[dp.Device]:
        Event().wait()
        return []


class Raises(Faulty):
    @override
    def discover(self) -> Iterable[dp.Device]:
        raise RuntimeError("the library says no")


class Rubbish(Faulty):
    @override
    def discover(self) -> Any:
        return [7, None, dp.Device("not/valid\0"), object()]


class Exits(Faulty):
    @override
    def discover(self) -> Iterable[dp.Device]:
        sys.exit(0)


class Dies(Faulty):
    """Has a thread of its own, which dies, and a source of events that ends the thread it is in."""

    def __init__(self, settings: dp.Settings) -> None:
        super().__init__(settings)
        threading.Thread(target=self._die, name="dying").start()

    def _die(self) -> None:
        raise SystemExit

    @override
    def changes(self, stop: Event) -> Iterator[None]:
        raise SystemExit(3)
        yield


class Wild(Faulty):
    """All other hooks hang or raise."""

    @override
    def allocate(self, devices: Any) -> dp.Allocation:
        Event().wait()
        return super().allocate(devices)

    @override
    def metrics(self) -> Iterable[Any]:
        Event().wait()
        return []

    @override
    def start(self, resource: str) -> None:
        raise RuntimeError("cannot start")

    @override
    def released(self, devices: Any) -> None:
        Event().wait()


class Stuck(Faulty):
    """Its constructor does not return."""

    def __init__(self, settings: dp.Settings) -> None:
        super().__init__(settings)
        Event().wait()


class Late(Faulty):
    """Its constructor fails until the file of the variable LATE is there."""

    def __init__(self, settings: dp.Settings) -> None:
        super().__init__(settings)
        if not Path(os.environ["LATE"]).exists():
            raise OSError("the driver is not loaded yet")


KINDS: Final = {
    one.__name__.lower(): one for one in (Hangs, Raises, Rubbish, Exits, Dies, Wild, Stuck, Late)
}


def __getattr__(name: str) -> Any:
    """Return the function of a kind's entry point."""
    if name in KINDS:
        return lambda: Hosted(KINDS[name], dp.Settings)
    raise AttributeError(name)


def install(folder: Path) -> dict[str, str]:
    """Make the package ``faulty`` in ``folder``, and return the variables by which it is found."""
    (folder / "faulty.py").write_text(Path(__file__).read_text())
    (folder / "frozen_import.py").write_text("import threading\nthreading.Event().wait()\n")
    metadata = folder / "faulty-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: faulty\nVersion: 1.0\n")
    points = [f"{name} = faulty:{name}" for name in KINDS]
    points.append("frozen = frozen_import:hosted")
    text = "[deviceplugin.plugins]\n" + "\n".join(points) + "\n"
    (metadata / "entry_points.txt").write_text(text)
    return {"PYTHONPATH": str(folder)}
