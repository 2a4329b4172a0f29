"""The class that a plugin author writes."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from threading import Event
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeAlias

from deviceplugin.model import Allocation, Device
from deviceplugin.model._device import merged as _merged

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

Holder: TypeAlias = tuple[str, ...]
"""Resource, device, namespace, pod and container; more is ignored."""
Usage: TypeAlias = Mapping[Holder, Mapping[str, float]]
"""What holders use of their devices: numbers by names with units, as ``memory_used_bytes``."""


class Plugin(ABC):
    """A source of devices. Only ``discover`` must be written.

    The framework calls every hook from its own threads. Hooks that a pod waits for have a time
    limit. Whatever a hook raises is logged, counted and contained. Hooks of one plugin can run at
    the same time: guard what they share. ``docs/plugins.md`` says when each of them is called.
    """

    resource: str = ""
    """Extended resource name, such as ``example.com/serial``.

    It applies to devices that do not name their own. If given, it is advertised even while there
    are no devices. A resource that only devices name comes and goes with them.
    """

    watch_paths: Sequence[Path | str] = ()
    """Files and directories whose changes trigger a discovery at once.

    Read again after each discovery. Paths may come into being later. With ``/**`` at the end of a
    directory, the directories below it are watched too.
    """

    shortfalls: Sequence[str] = ()
    """What the last discovery should offer and does not, a message for each.

    Such as hardware without a driver, and a setting that nothing here matches. Read again after
    each discovery that succeeds. Each is logged once, counted by a metric, and shown by the doctor.
    """

    invalid_entries: Sequence[str] = ()
    """What is wrong with entries of the settings that are skipped, a message for each.

    That of ``Settings`` with the same name, if the plugin has such a list. Each is logged as an
    error, counted by a metric, shown by the doctor and ``/readyz``, and becomes an Event.
    """

    socket_name: str = ""
    """Another file name, without its ``.sock``, of the socket of ``resource``.

    It is for programs that look for it. The kubelet is given a name that is new each time. Of
    several running plugins with one name, the first has it, and all work.
    """

    needs_process: bool = False
    """Whether devices stop working when the plugin stops.

    If so, they are reported unhealthy at shutdown, and the pods that hold them show it. Most
    hardware goes on working: then running pods notice nothing while a plugin is replaced.
    """

    exclusive: bool = False
    """Whether to refuse to allocate a device that another pod holds, according to the kubelet.

    In rare cases the kubelet gives one device to two pods. Otherwise this costs nothing.
    """

    held: Sequence[Device] = ()
    """The devices that an operator holds and nobody uses any more, as they were when held.

    The framework sets it before the first discovery, and before ``let_go``. Do not open these in
    ``discover``, or anywhere else: those that it does not return stay listed as they were.
    """

    made: Mapping[str, str] = MappingProxyType({})
    """The parts that claims have, by id, each with its identity.

    That is empty while a part is being made, and after a reboot, until it is made again: then the
    part is healthy. The framework replaces it before the first discovery, before ``make_part``, and
    after each change. ``discover`` must list all of these, whatever the settings are by now. What
    looks like a part and is not in it was made by somebody else: leave it alone, and let its
    counters have less.
    """

    parameters: type | None = None
    """A frozen dataclass of what a ResourceClaim may say about its devices, or None for nothing.

    Each field needs a type as in settings, and a default. In a claim its name is written in camel
    case: ``idleTimeout`` for ``idle_timeout``. Override ``allocate_with`` to use them.
    """

    holders: Callable[[], Iterable[Holder]] = tuple
    """Returns the devices that containers are known to hold, of all plugins, from memory.

    The framework sets it if ``usage`` is overridden.
    """

    @abstractmethod
    def discover(self) -> Iterable[Device]:
        """Return every device that is here now, each with its health.

        This is a snapshot: there is no need to compare or to remember anything. It is called at the
        start, periodically, and when ``watch_paths`` or ``changes`` trigger it. A device that is
        missing from it is advertised as unhealthy until no pod can hold it any more.

        Raises:
            DiscoveryError: The devices cannot be discovered. Any other error counts as this one.
                The devices of the last snapshot stay, and turn unhealthy after a deadline.
        """

    def allocate(self, devices: Sequence[Device]) -> Allocation:
        """Return what a container that is given ``devices`` gets.

        The devices are known and healthy, in natural order, without duplicates. The default is
        the sum of their recipes; call ``super().allocate(devices)`` and edit the result, or build
        your own. It can be called several times for the same devices, and their release is not
        reported here. So it must not depend on earlier answers.

        Raises:
            AllocationError: The request is refused. The pod's status shows the message. The default
                refuses devices that need different things under one path or name.
        """
        return _merged(devices)

    def allocate_with(self, devices: Sequence[Device], parameters: Any) -> Allocation:
        """Return the same as ``allocate`` for a container that may have given ``parameters``.

        It is called instead of ``allocate`` if the plugin has ``parameters``, and gets an object of
        that class: what the claim says, checked, or the defaults. A pod without a claim gets the
        defaults, and so does every pod through the device-plugin protocol. After a reboot it is
        called again with the same parameters. It may call ``self.allocate(devices)``.

        Raises:
            AllocationError: As for ``allocate``.
        """
        raise NotImplementedError

    def prefer(
        self, available: Sequence[Device], required: Sequence[Device], size: int
    ) -> Iterable[Device]:
        """Return the ``size`` best devices to give to one container.

        If overridden, the plugin offers preferred allocation to the kubelet. ``available`` contains
        ``required``. The answer is a wish: the framework drops what is not available, adds what
        is required or missing, and chooses by itself if this raises or takes too long.
        """
        raise NotImplementedError

    def pre_start(self, devices: Sequence[Device]) -> None:
        """Prepare ``devices`` just before a container that holds them starts, or starts again.

        The kubelet calls it if it is overridden. Then no container that holds a device can start
        while the plugin is away, so override it only if the hardware needs it.

        Raises:
            AllocationError: The container must not start yet; the kubelet will try again.
        """
        raise NotImplementedError

    def changes(self, stop: Event) -> Iterator[None]:
        """Yield to trigger a discovery.

        This is for sources of events other than files, such as udev or NVML. Yield once as soon as
        you listen, because something may have happened before. Yield once whenever events may have
        been lost. Return soon after ``stop`` is set. Discovery also runs periodically.
        """
        raise NotImplementedError

    def released(self, devices: Sequence[Device]) -> None:
        """Clean up ``devices``, which no pod holds any more.

        It is called only if overridden: at least once for each release, and again while it raises.
        The framework concludes a release from the pods that the kubelet reports, and rather late
        than early: 5 to 40 s after the end of the pod. An allocation of one of ``devices``
        waits until this returns. It is never called if the pod resources socket is not mounted, nor
        for a release while the plugin was away: so treat free devices as used in ``start``.
        """
        raise NotImplementedError

    part_timeout: float = 30.0
    """Seconds that ``make_part`` and ``unmake_part`` may take. The pod of a claim waits."""

    def make_part(self, part: Device) -> Device:
        """Make ``part``, whose ``part.on_demand`` is true, for a claim that is being prepared.

        Return the device as ``allocate`` shall get it, with the same id and with the identity in
        its ``part``. It must be idempotent: after a crash, a timeout or a reboot it is called again
        for the same claim, and finds nothing, a half-made part, or the part. It is called only
        while the counters suffice, never for two parts of one ``Counters`` at a time.

        Raises:
            AllocationError: It cannot be made, and nothing of it is left. The kubelet tries again.
            After any other error, ``unmake_part`` is called.
        """
        raise NotImplementedError

    def unmake_part(self, part: Device, identity: str) -> None:
        """Remove the part that ``make_part`` made, whose claim has ended, or what is left of it.

        ``identity`` is empty if ``make_part`` has not returned. A part with another one is somebody
        else's, and stays. It must be idempotent: success if there is nothing to remove. ``part``
        may be only an id and a resource, if the hardware is gone.

        Raises:
            DevicePluginError: It is still there. Nobody gets it; the kubelet tries again.
        """
        raise NotImplementedError

    def let_go(self, devices: Sequence[Device]) -> None:
        """Close whatever the plugin has open of ``devices``, which are in ``held``.

        So an operator can reset or reload one device while the others work. Called once no pod
        has them, in a thread of its own and with a time limit, and again while it raises; also at
        the start for devices that were held before. Return only once nothing of them is open, in
        children of the plugin too: then they are reported as let go.

        Raises:
            DevicePluginError: Something is still open. The operator sees the message.
        """
        raise NotImplementedError

    def take_back(self, devices: Sequence[Device]) -> None:
        """Check ``devices``, which are about to be released and are not in ``held`` any more.

        Raises:
            DevicePluginError: They cannot be used yet: they stay held, and the operator sees why.
        """
        raise NotImplementedError

    reset_timeout: float = 120.0
    """Seconds that ``reset`` may take for each piece of hardware.

    Until it has returned, its devices are not released.
    """

    def reset(self, devices: Sequence[Device]) -> None:
        """Reset ``devices``, all of one hold, which may be unhealthy because of what this repairs.

        If overridden, ``deviceplugin hold --reset`` and ``auto-repair`` can use it. It is called
        only while the devices are held, no pod has any part of their hardware, and ``let_go`` has
        succeeded; in a thread of its own, for one hold at a time. It must be idempotent: after a
        crash it is called again, a limited number of times. Then ``discover`` checks the devices.

        Raises:
            DevicePluginError: They are not reset. They stay held, and the operator sees why.
        """
        raise NotImplementedError

    def reset_reaches(self, devices: Sequence[Device]) -> Iterable[str]:  # noqa: ARG002
        """Return what hardware a reset of ``devices`` resets too, as ``Device.hardware`` has it.

        Such as the other functions of a PCI slot. Nothing is reset unless those are held and let go
        too. It is called before each reset, for at most 5 s, and when a reset is asked for.

        Raises:
            DevicePluginError: It is not known, or these cannot be reset: the request is refused.
        """
        return ()

    def metrics(self) -> "Iterable[Metric]":
        """Return metrics of the plugin's own, as families of ``prometheus_client.core``.

        It is called for a request of ``/metrics``, with a time limit, at most once a second. If it
        raises, only these metrics are missing. Begin their names with ``deviceplugin_`` and the
        name of the plugin. A metric that has a name of the framework's is dropped.
        """
        raise NotImplementedError

    def usage(self) -> Usage:
        """Return what each of ``holders`` uses of its device, as far as it is known.

        It is called for ``/devices`` and the page, with a time limit.
        """
        raise NotImplementedError

    def start(self, resource: str) -> None:
        """Get ready for ``resource``, before it is registered for the first time.

        While it raises, it is tried again every 5 s, and the resource is not registered. It is
        called again when new settings replace the plugin object, after the old object's ``stop``.
        """

    def stop(self, resource: str) -> None:
        """Undo ``start``, after ``resource`` has been unregistered for good."""


def overrides(plugin: Plugin, hook: str) -> bool:
    """Return whether the class of ``plugin`` overrides a method. Optional hooks are called then."""
    return getattr(type(plugin), hook) is not getattr(Plugin, hook)
