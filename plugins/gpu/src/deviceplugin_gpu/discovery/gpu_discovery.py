"""Which GPUs exist, whether they are healthy, and why there are none."""

import logging
from collections.abc import Iterable, Iterator
from pathlib import Path
from threading import Event as Flag
from typing import Final

import deviceplugin as dp
from deviceplugin.kit.backoff import MONOTONIC, Clock
from deviceplugin.kit.health import SteadyHealth, Tolerance, absence
from deviceplugin.kit.log import Problems
from deviceplugin_gpu import host
from deviceplugin_gpu.advertised.units import any_names
from deviceplugin_gpu.configuration.settings import GpuSettings
from deviceplugin_gpu.discovery.driver import Driver
from deviceplugin_gpu.health.license import LicenseRules
from deviceplugin_gpu.health.xids import DOUBLE_BIT, parse_checks
from deviceplugin_gpu.host import Roots
from deviceplugin_gpu.nvml.api import (
    EVENT_DOUBLE_BIT,
    EVENT_SINGLE_BIT,
    EVENT_XID,
    VERSION_MISMATCH,
    LibraryMissingError,
    NvmlError,
)
from deviceplugin_gpu.nvml.enumeration import UnidentifiedGpu
from deviceplugin_gpu.nvml.events import EventWatch
from deviceplugin_gpu.nvml.library import MISSING, UPGRADED, Library
from deviceplugin_gpu.snapshot import TEGRA, WSL, Gpu, Snapshot

_WSL_NODE: Final = "dxg"
log = logging.getLogger(__name__)


def explain(roots: Roots, library: Library, error: NvmlError | None) -> Iterator[str]:
    """Yield what was tried, what exists, and finally what to do, a line each."""
    if error is not None:
        yield f"NVML: {error}" if not isinstance(error, LibraryMissingError) else "NVML: no library"
    yield from _attempts(library)
    nodes = [path.name for path in host.matches(roots.dev, "nvidia*")]
    yield f"device files: {', '.join(nodes) or f'no {roots.dev}/nvidia*'}"
    loaded = (line.split(" ")[0] for line in host.text(roots.proc / "modules").splitlines())
    modules = sorted(name for name in loaded if name.startswith("nvidia"))
    yield f"kernel modules: {', '.join(modules) or 'none that begins with nvidia'}"
    cards = list(host.cards(roots.sys))
    yield f"NVIDIA GPUs on the PCI bus: {', '.join(cards) or 'none'}"
    yield f"to do: {_advice(error, nodes, modules, cards)}"


def _attempts(library: Library) -> Iterator[str]:
    missing = [Path(place).parent for place, why in library.attempts.items() if why == MISSING]
    if missing:
        folders = ",".join(str(path.relative_to(library.root)) for path in missing)
        yield f"library: not in {library.root / f'{{{folders}}}'}"
    for place, outcome in library.attempts.items():
        if outcome != MISSING:
            shown = f"{place}: " if place not in outcome else ""
            yield f"library: {shown}{outcome or 'loaded'}"


def _advice(error: NvmlError | None, nodes: list[str], modules: list[str], cards: list[str]) -> str:
    if not cards and not modules:
        return "this node seems to have no GPU: set fail-on-init-error to false if that is intended"
    if not modules:
        return "install the NVIDIA driver on the node, or load its modules: modprobe nvidia"
    if isinstance(error, LibraryMissingError):
        return (
            "the driver is loaded, but its library is not visible here: run the plugin with "
            "runtimeClassName nvidia, or mount the driver's root and name it with "
            "--driver-root-ctr-path; delete a pod that is older than the node's driver"
        )
    if error is not None and error.code == VERSION_MISMATCH:
        return UPGRADED
    if not nodes:
        return "create the device files: run nvidia-modprobe -c 0 -u, or nvidia-smi once"
    return "see the kernel's log for lines with NVRM: dmesg | grep NVRM"


def without_nvml(roots: Roots, strategy: str, *, missing: bool) -> Snapshot | None:
    """Return the GPU of a system that is not read through NVML, or None.

    The strategy ``auto`` recognizes a Tegra system, such as a Jetson, only if NVML is ``missing``.
    """
    if strategy == TEGRA or (missing and strategy == "auto" and host.is_tegra(roots)):
        return Snapshot((Gpu(0, TEGRA, name="Tegra"),))
    if strategy == "auto" and not absence(roots.dev / _WSL_NODE):
        return Snapshot((Gpu(0, WSL, name="WSL"),))
    return None


def has_traces(roots: Roots) -> bool:
    """Return whether there is NVIDIA hardware that no virtual machine has, or a driver for it."""
    if not absence(roots.proc / "driver/nvidia") or host.matches(roots.dev, "nvidia*"):
        return True
    return bool(host.cards(roots.sys))


class GpuDiscovery:
    """The GPUs of ``driver``, and those of systems without NVML.

    One thread at a time may call ``poll``, and one other thread ``changes``. Both report what they
    find to ``driver.health``.
    """

    def __init__(
        self,
        settings: GpuSettings,
        driver: Driver,
        roots: Roots,
        clock: Clock = MONOTONIC,
    ) -> None:
        self._settings = settings
        self._driver = driver
        self._roots = roots
        self._watch = EventWatch(driver.session, clock)
        self._listening = self._configure_health()
        self._deadline = settings.discovery_deadline.total_seconds()
        self._gpus: frozenset[str] | None = None
        self._explained = Problems(log)
        self._absence = Problems(log, logging.INFO)
        self._nvml = SteadyHealth[str](Tolerance(patience=self._deadline), clock.now)
        self._judge_nvml(dp.Health())

    def poll(self) -> tuple[Snapshot, list[str]]:
        """Return the GPUs, and warnings. Hardware that cannot be read is an NvmlError."""
        snapshot = self._without_nvml(missing=False)
        strange: list[str] = []
        if snapshot is None:
            try:
                snapshot, strange = self._through_nvml()
            except NvmlError as error:
                snapshot = self._instead(error)
        self._judge_nvml(dp.Health())
        if snapshot.gpus:
            self._explained.over("")
        return snapshot, strange

    @property
    def absent(self) -> list[UnidentifiedGpu]:
        """The GPUs that the last poll could not identify, but for those that are excluded."""
        found = self._driver.unidentified
        exclude = self._settings.exclude
        return [one for one in found if not any_names(exclude, Gpu(-1, "", pci=one.pci))]

    def changes(self, stop: Flag) -> Iterator[None]:
        """Yield whenever a GPU reports something that may have changed its state.

        Also yield whenever listening has started, for what was missed before.
        """
        health = self._driver.health
        for event in self._watch.events(stop):
            if event.kind == EVENT_XID:
                health.saw_xid(event.uuid, event.number, event.instance)
            elif event.kind == EVENT_DOUBLE_BIT:
                health.saw_xid(event.uuid, DOUBLE_BIT)
            if event.kind != EVENT_SINGLE_BIT:  # corrected, and often many
                yield

    def _through_nvml(self) -> tuple[Snapshot, list[str]]:
        # A slow NVML must not make /healthz fail, as it does after the deadline.
        found = self._driver.poll(self._deadline / 4)
        gpus = frozenset(found.handles)
        changed = self._gpus is not None and gpus != self._gpus
        if changed or self._watch.deaf or not self._watch.hears(gpus):
            self._watch.renew()
        self._gpus = gpus
        unheard = self._unheard(gpus)
        self._driver.health.observe(found.snapshot, unheard, found.needs_reset, found.energy)
        strange = list(map(str, self.absent))
        if not (found.snapshot.gpus or self._driver.session.held):
            self._explain(None)
        return found.snapshot, strange

    def _without_nvml(self, *, missing: bool) -> Snapshot | None:
        strategy = self._settings.device_discovery_strategy
        found = without_nvml(self._roots, strategy, missing=missing)
        if found is not None:
            self._driver.health.observe(found)
        return found

    def _instead(self, error: NvmlError) -> Snapshot:
        """Return the GPUs where NVML fails with ``error``, or raise it if there should be any."""
        if isinstance(error, LibraryMissingError):
            found = self._without_nvml(missing=True)
            if found is not None:
                return found
        # If NVML has worked before, there is a driver, and an error now is a failure.
        if not self._driver.session.generation and not has_traces(self._roots):
            self._explained.over("")
            self._absence.say("", "no NVIDIA hardware found")
            return Snapshot()
        self._explain(error)
        # After the framework's own deadline, so that metrics agree with what is advertised.
        if not self._judge_nvml(dp.Health.unhealthy(str(error))):
            self._driver.health.failed(str(error))
        raise error

    def _judge_nvml(self, found: dp.Health) -> dp.Health:
        return self._nvml.judge("", found)

    def _configure_health(self) -> bool:
        """Pass the settings to ``driver.health``. Return whether any error of a GPU counts."""
        settings = self._settings
        checks, problems = parse_checks(settings.disable_healthchecks, settings.enable_healthchecks)
        for problem in problems:
            log.warning("invalid setting ignored", extra={"problem": problem})
        rules = LicenseRules(
            settings.vgpu_license_required, settings.vgpu_license_warning.total_seconds()
        )
        recovery = settings.recovery_time.total_seconds()
        self._driver.health.configure(checks, recovery, rules)
        return not checks.all_disabled or checks.all_enabled or bool(checks.enabled)

    def _unheard(self, gpus: Iterable[str]) -> dict[str, str]:
        """Return why errors of GPUs would be missed, by UUID. Their state is then unknown."""
        if not self._listening:
            return {}
        found = dict(self._watch.deaf)
        silence = self._watch.silence()
        if silence and silence[0] > self._deadline:
            # The text is constant: one with the seconds in it would be logged at each discovery.
            reason = f"its errors could not be listened to for {self._deadline:g} s: {silence[1]}"
            found |= {uuid: reason for uuid in gpus if uuid not in self._watch.mute}
        return found

    def _explain(self, error: NvmlError | None) -> None:
        """Log why there are no GPUs, once per reason."""
        self._absence.over("")
        if self._explained.is_news("", str(error)):
            for finding in explain(self._roots, self._driver.library, error):
                log.warning("no usable GPU", extra={"finding": finding})
