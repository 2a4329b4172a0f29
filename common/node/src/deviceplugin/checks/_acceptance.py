"""What a plugin adds to ``accept``, which tries its devices on a machine that has them.

A package names an ``Acceptance`` as an entry point of the group ``deviceplugin.accept``, under the
name of the plugin. The command itself is in ``deviceplugin-testing``, which no image has.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from deviceplugin.checks._node import Finding


@dataclass(frozen=True, slots=True)
class Found:
    """A device that the plugin offers."""

    resource: str
    id: str
    reason: str = ""
    """Why it is unhealthy; empty if it is healthy."""
    numa: Sequence[int] = ()
    attributes: Mapping[str, Any] = field(default_factory=dict[str, Any])

    @property
    def hardware(self) -> str:
        """The id without the number of a share."""
        return self.id.partition("::")[0]


@dataclass(frozen=True, kw_only=True)
class Container:
    """Containers with one device, and the plugin that has given it and still runs."""

    device: Found
    run: Callable[..., Mapping[str, Any]]
    """Runs the probe with arguments in a new container, and returns its result."""
    metrics: Callable[[], str]
    """Returns what ``/metrics`` of the plugin has."""
    log: Callable[[], str]
    """Returns what the plugin has logged, in JSON."""
    is_healthy: Callable[[], bool]
    """Returns whether the kubelet has the device as healthy."""
    eventually: Callable[[Callable[[], bool]], bool]
    """Returns whether a condition comes true within some seconds."""


@dataclass(frozen=True, kw_only=True)
class Acceptance:
    """How a plugin is tried. ``config`` is what ``--print-config`` prints for the given flags."""

    module: str
    """What ``python -m`` runs as the plugin."""
    strategies: Mapping[str, Sequence[str]]
    """Flags for each way in which the plugin can give a device."""
    outside: Callable[[Mapping[str, Any]], Sequence[str]] = lambda _config: ()
    """Returns flags for a plugin that is not in its pod, where a default is no path of a host."""
    drivers: frozenset[str] = frozenset()
    """Kernel drivers of the render nodes that a device has, if there is no ``probe``."""
    probe: Path | None = None
    """A program in Python's own library, which runs in a container that has one device.

    The last line that it prints is a JSON object, with ``error`` if something failed.
    """
    judge: Callable[[Found, Mapping[str, Any]], Iterable[Finding]] | None = None
    """Returns what is right and wrong with the result of ``probe``."""
    compare: Callable[[Sequence[Found], Mapping[str, Any]], Iterable[Finding]] | None = None
    """Compares devices with what another program of the machine says of them."""
    node: str = ""
    """Pattern of the paths of nodes whose holders use the device."""
    computing: str = ""
    """Pattern of the paths of nodes that a holder has too if it computes; empty if the probe hurts
    nobody who does."""
    by_runtime: Callable[[Mapping[str, str], Sequence[str], Path], tuple[list[str], str]] | None = (
        None
    )
    """Returns which CDI devices the vendor's runtime adds by the variables and mount points of an
    answer, or why it adds none. It may write their specification to the directory."""
    bystanders: frozenset[str] = frozenset()
    """Names of processes of the driver, which hold nodes and use no device."""
    provoke: Callable[[Container], Iterable[Finding]] | None = None
    """Provokes an error of a device that nobody uses, such that it stays healthy."""
