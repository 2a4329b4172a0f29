"""Changing the protocol that offers the devices, while pods hold some of them."""

import logging
import math
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from deviceplugin._attribution.ownership import Mode, Ownership
from deviceplugin._attribution.poll_schedule import Key
from deviceplugin._inventory.published import Catalogue
from deviceplugin._platform.clock import MONOTONIC, Clock
from deviceplugin._platform.waiting import Waiter
from deviceplugin._telemetry.events import Events
from deviceplugin.errors import DevicePluginError
from deviceplugin.kit.log import Problems

if TYPE_CHECKING:
    from deviceplugin._app.dra import Dra

log = logging.getLogger(__name__)

_STEP: Final = 1.0
"""Seconds between steps while a switch is under way."""
_AGAIN: Final = 10.0
"""Seconds until DRA is started again after it could not."""


@dataclass(eq=False, repr=False, kw_only=True)
class ProtocolSwitch:
    """Makes ownership follow the protocol that is wanted. ``run`` is its thread."""

    target: Mode
    """The protocol that is wanted."""
    dra: "Dra | None"
    """DRA, while it runs: from the start if it is needed then."""
    make: "Callable[[], Dra]"
    """Makes it later. It raises DevicePluginError if that cannot be."""
    ownership: Ownership
    catalogue: Catalogue
    up_to_date: Callable[[str], bool]
    """Returns whether the kubelet has the latest list and options of a resource."""
    shared: Callable[[], Collection[str]] = list
    """Asks which resources another process serves, too."""
    allocatable: Callable[[], Collection[Key]]
    """Asks the kubelet what it could give out; may raise KubeletUnavailableError."""
    discovered: Callable[[], bool]
    """Returns whether each plugin has tried to discover its devices."""
    poll_soon: Callable[[], None]
    """Makes the tracker of holdings poll soon."""
    events: Events
    clock: Clock = MONOTONIC

    def __post_init__(self) -> None:
        self._waiter = Waiter(self.clock)
        self._problems = Problems(log)
        self._failures = Problems(log, logging.ERROR)
        self._under_way = False
        self._waits = ""
        self.may_offer = self.ownership.mode != "dra"
        """Whether DRA may offer devices, as no other process does by the device plugin. In a switch
        that is known before."""
        self.ownership.subscribe(self._waiter.poke)

    def to(self, target: Mode) -> None:
        """Offer the devices by ``target``, each as soon as that is safe."""
        self.target = target
        self._waiter.poke()

    def problems(self) -> list[str]:
        """Return why the protocol that is wanted cannot serve now; nothing if it can."""
        problem = self.dra.problem() if self.dra and self.target == "dra" else ""
        return [f"DRA: {problem}"] if problem else []

    def troubles(self) -> list[str]:
        """Return what keeps devices from being offered through DRA now; nothing without DRA."""
        trouble = self._waits or (self.dra.trouble() if self.dra else "")
        return [f"DRA: {trouble}"] if trouble else []

    def remarks(self) -> list[str]:
        remark = self._waits or (self.dra.remark() if self.dra else "")
        return [f"DRA: {remark}"] if remark else []

    def run(self) -> None:
        if self.dra is not None:
            self._begin(self.dra)
        try:
            while not self._waiter.is_over():
                self._waiter.until_poked(self._try())
        finally:
            if self.dra is not None:
                self.dra.stop()

    def stop(self) -> None:
        self._waiter.end()

    def _try(self) -> float:
        """Do what can be done now; return the seconds until the next attempt."""
        try:
            self._step()
        except DevicePluginError as error:
            self._problems.say(
                "switch", "protocol not switched yet", protocol=self.target, error=str(error)
            )
            return _AGAIN if self.dra is None else _STEP
        except Exception as error:  # of ours: it must not end the device plugin
            self._failures.say(
                "switch",
                "protocol switch failed",
                cause=error,
                protocol=self.target,
                error=f"{type(error).__name__}: {error}",
            )
            return _AGAIN
        self._problems.over("switch")
        self._failures.over("switch")
        return _STEP if self._is_busy else math.inf

    @property
    def _is_busy(self) -> bool:
        ownership = self.ownership
        behind = ownership.mode != self.target or bool(ownership.leaving)
        behind = behind or (ownership.mode == "dra" and not self.may_offer)
        return behind or (self.target == "device-plugin" and self.dra is not None)

    def _step(self) -> None:
        ownership, target = self.ownership, self.target
        if target == "dra" and self.dra is None:
            self.dra = self.make()
            self._begin(self.dra)
        if ownership.mode != target and self._is_ready(target):
            log.info("switching protocol", extra={"protocol": target})
            self.events.add("switching protocol", detail=target)
            self._under_way = True
            self._waits, self.may_offer = "", True
            ownership.switch(target)
            self.poll_soon()
        if ownership.mode == "dra":
            self._begin_to_offer()
            self._acknowledge()
        self._conclude()

    def _begin(self, dra: "Dra") -> None:
        dra.start()
        self.catalogue.attach(dra)
        self.ownership.driver_runs(runs=True)

    def _is_ready(self, target: Mode) -> bool:
        """Return whether ``target`` could offer devices, so that no protocol does for long."""
        assert self.dra is not None
        if target == "device-plugin":
            # What was published before the start is withdrawn only if it is known, and only by the
            # process that leads.
            return self.discovered() and self.dra.leads
        self._check_alone()
        if trouble := self.dra.trouble():
            raise DevicePluginError(trouble)
        return True

    def _begin_to_offer(self) -> None:
        """Let DRA offer devices after a start, once no older process does by the device plugin."""
        if self.may_offer or self.dra is None or not (self.dra.leads and self.discovered()):
            return
        waited = self._waits
        self._check_alone()
        if waited:
            self.ownership.switch("dra", again=True)
        self.may_offer = True
        self.dra.poke()

    def _check_alone(self) -> None:
        names = ", ".join(sorted(self.shared()))
        self._waits = f"another process offers {names} by the device plugin" if names else ""
        if self._waits:
            raise DevicePluginError(self._waits)

    def _acknowledge(self) -> None:
        """Report to ownership what the kubelet would not give out any more."""
        leaving = self.ownership.leaving
        names = {name for name, _ in leaving}
        served = self.catalogue.resources().keys()
        sent = {name for name in names if name not in served or self.up_to_date(name)}
        if sent:
            pending = {key for key in leaving if key[0] not in sent}
            self.ownership.acknowledged({*self.allocatable(), *pending})

    def _conclude(self) -> None:
        ownership, dra = self.ownership, self.dra
        if ownership.mode != self.target or ownership.leaving:
            return
        if self._under_way:
            self._under_way = False
            log.info("protocol switched", extra={"protocol": ownership.mode})
            self.events.add("protocol switched", detail=ownership.mode)
        if ownership.mode == "device-plugin" and dra is not None and dra.is_idle:
            self.catalogue.detach(dra)
            dra.finish()  # before another process can lead
            dra.stop()
            self.dra = None
            self.ownership.driver_runs(runs=False)
