"""The class that a plugin author writes."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING

from deviceplugin import _allocation as _recipes
from deviceplugin.model import Allocation, Device

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric


class Plugin(ABC):
    """A source of devices. Only ``discover`` has to be written.

    The framework calls every hook from threads of its own, those that a pod waits for with a time
    limit; whatever a hook raises is logged, counted and contained. Hooks of one plugin can run at
    the same time: guard what they share. ``docs/plugins.md`` says when each of them is called.
    """

    resource: str = ""
    """Extended resource name, such as ``example.com/serial``.

    For devices that do not name their own. Where given it is advertised even while there are no
    devices; a resource that only devices name comes and goes with them.
    """

    watch_paths: Sequence[Path | str] = ()
    """Files and directories that call for a new discovery at once when they change.

    Looked at again after each discovery. Paths that do not exist yet are waited for. Directories
    below a directory are watched if it is written with ``/**`` at the end.
    """

    socket_name: str = ""
    """File name, without its ``.sock``, of the socket of ``resource``.

    Where not given, which is better, each socket has a name of its own that nobody else takes.
    """

    needs_process: bool = False
    """Whether devices stop working when the plugin does.

    If so they are reported unhealthy at shutdown, so that the pods that hold them show it. If not,
    as for most hardware, running pods are left in peace while a plugin is replaced.
    """

    exclusive: bool = False
    """Whether to refuse an allocation of a device that the kubelet says another pod holds.

    The kubelet gives a device to two pods in rare cases. Costs nothing while it does not.
    """

    @abstractmethod
    def discover(self) -> Iterable[Device]:
        """Return every device that is here now, each with its health.

        A snapshot: compare with nothing, remember nothing. Called at the start, periodically, and
        when ``watch_paths`` or ``changes`` call for it. A device that is missing from it is
        advertised as unhealthy until no pod can hold it any more.

        Raises:
            DiscoveryError: The devices cannot be discovered; anything else raised counts as that.
                The last snapshot stays in force, and turns unhealthy after a deadline.
        """

    def allocate(self, devices: Sequence[Device]) -> Allocation:
        """Return what a container that is given ``devices`` gets.

        The devices are known and healthy, in natural order, without repetitions. The default is
        the sum of their recipes; call ``super().allocate(devices)`` and edit the result, or build
        your own. It can be called several times for the same devices, and is not called
        when they are released, so it must not depend on earlier answers.

        Raises:
            AllocationError: To refuse; the message is shown in the pod's status. The default
                refuses devices that need different things under one path or name.
        """
        return _recipes.merged(devices)

    def prefer(
        self, available: Sequence[Device], required: Sequence[Device], size: int
    ) -> Iterable[Device]:
        """Return the ``size`` best devices to give to one container.

        Overriding it offers preferred allocation to the kubelet. ``available`` contains
        ``required``. The answer is a wish: the framework drops what is not available, adds what
        is required or missing, and chooses by itself if this raises or takes too long.
        """
        raise NotImplementedError

    def pre_start(self, devices: Sequence[Device]) -> None:
        """Prepare ``devices`` just before a container that holds them starts, or starts again.

        Overriding it makes the kubelet call it; then no container that holds a device can
        start while the plugin is away, so override it only where hardware needs it.

        Raises:
            AllocationError: The container must not start yet; the kubelet will try again.
        """
        raise NotImplementedError

    def changes(self, stop: Event) -> Iterator[None]:
        """Yield whenever a discovery should be made now.

        For sources of events other than files, such as udev or NVML. Yield once as soon as you
        listen, for what happened before, and once whenever events may have been lost. Return soon
        after ``stop`` is set. A trigger only: discovery is also made periodically.
        """
        raise NotImplementedError

    def released(self, devices: Sequence[Device]) -> None:
        """Take notice that no pod holds ``devices`` any more.

        Called only if overridden. Concluded from what the kubelet reports of its pods, so
        late rather than early: some 5 to 40 s after the end of the pod, at least once, and again
        while it raises. A device of it that is allocated meanwhile waits until it returns. Never
        called where the pod resources socket is not mounted; nor for what was released while
        the plugin was away, so treat free devices as used in ``start``.
        """
        raise NotImplementedError

    def metrics(self) -> "Iterable[Metric]":
        """Return metrics of the plugin's own, as families of ``prometheus_client.core``.

        Called when ``/metrics`` is asked for, with a time limit, at most once a second. Whatever
        it raises costs these metrics only. Start their names with ``deviceplugin_`` and the
        plugin's own; a name that the framework has is left out.
        """
        raise NotImplementedError

    def start(self, resource: str) -> None:
        """Get ready for ``resource``, before it is registered for the first time.

        Tried again every 5 s while it raises; the resource is not registered meanwhile. Called
        again, after the old plugin's ``stop``, when new settings bring a new plugin object.
        """

    def stop(self, resource: str) -> None:
        """Undo ``start``, after ``resource`` has been unregistered for good."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """Which of the hooks that a plugin can leave out its class has; each is called only if it does.

    But for ``allocate``: its default is called, without a time limit.
    """

    allocate: bool
    prefer: bool
    pre_start: bool
    changes: bool
    released: bool
    metrics: bool

    @staticmethod
    def of(plugin: Plugin) -> "Capabilities":
        """Return those of ``plugin``, found out once for its class."""
        return _capabilities(type(plugin))


@cache
def _capabilities(kind: type[Plugin]) -> Capabilities:
    return Capabilities(
        allocate=kind.allocate is not Plugin.allocate,
        prefer=kind.prefer is not Plugin.prefer,
        pre_start=kind.pre_start is not Plugin.pre_start,
        changes=kind.changes is not Plugin.changes,
        released=kind.released is not Plugin.released,
        metrics=kind.metrics is not Plugin.metrics,
    )


def overrides(plugin: Plugin, hook: str) -> bool:
    """Return whether ``plugin`` has its own version of ``hook``, whichever that is."""
    return getattr(type(plugin), hook) is not getattr(Plugin, hook)
