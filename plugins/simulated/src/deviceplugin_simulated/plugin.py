"""The plugin: devices that exist in the configuration only, and change over time."""

import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from datetime import timedelta
from threading import Event as Flag
from typing import Final

from typing_extensions import override

import deviceplugin as dp
from deviceplugin.kit import configuration
from deviceplugin.kit.log import Problems
from deviceplugin_simulated import control
from deviceplugin_simulated.control import Control
from deviceplugin_simulated.life import Action, Event, State, Trouble
from deviceplugin_simulated.parts import Parts
from deviceplugin_simulated.scenario import load
from deviceplugin_simulated.settings import SimulatedSettings

_LOOK_UP: Final = 0.5
"""Seconds between checks for a stop while waiting for something else."""
_LONGEST_WAIT: Final = 3600.0

log = logging.getLogger(__name__)

_VALUE: Final = configuration.text(digits=True)


def _name_problem(name: str) -> str:
    return "" if name and name.isprintable() and "=" not in name else "not a variable's name"


def _die() -> None:
    """Kill the process as a bug in C code would: at once, without cleaning up."""
    os.kill(os.getpid(), signal.SIGKILL)
    os._exit(128 + signal.SIGKILL)  # the first process of a container cannot kill itself


@dataclass(frozen=True, kw_only=True)
class SimulatedParameters:
    """What a ResourceClaim may say about simulated devices."""

    environment: Mapping[str, str] = field(
        default_factory=dict, metadata={"kind": configuration.mapping_of(_VALUE, _name_problem)}
    )
    """Further variables in the container."""
    delay: timedelta = field(
        default=timedelta(), metadata={"kind": configuration.duration(zero=True)}
    )
    """By how much the allocation takes longer."""
    refusal: str = ""
    """Why the allocation is refused; it is not, if empty."""


class SimulatedPlugin(dp.Plugin):
    """Advertise devices of the configuration, which fail by a script.

    ``clock`` returns seconds. The script begins when the plugin is created. ``crash`` ends the
    process.
    """

    parameters = SimulatedParameters

    def __init__(
        self,
        settings: SimulatedSettings | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
        crash: Callable[[], None] = _die,
    ) -> None:
        settings = settings or SimulatedSettings()
        scenario = load(settings)
        resources = list(dict.fromkeys(device.resource for device in scenario.devices))
        self.resource = resources[0] if resources else settings.resource
        self.socket_name = settings.plugin_name
        self._devices = {device.id: device for device in scenario.devices}
        self._targets = scenario.targets
        self._parts = Parts(scenario.devices, settings.state_file)
        self._problems = Problems(log)
        self._life = scenario.life()
        self._told = self._life.state
        self._clock = clock
        self._crash = crash
        self._start = clock()
        self._changed = threading.Condition()
        self._served: set[str] = set()
        self._stopped = False
        self._ordered = Flag()
        """Set when a client has sent a request."""
        self._control = (
            Control(settings.control_socket, self._obey) if settings.control_socket else None
        )

    @property
    def now(self) -> float:
        """Seconds since the script began."""
        return self._clock() - self._start

    @override
    def discover(self) -> Iterable[dp.Device]:
        state = self._state_when_awake()
        found = (
            _as_it_is(device, trouble)
            for device in self._devices.values()
            if not (trouble := _trouble(state, device)).unplugged
        )
        if not (self._targets.parts or self.made):
            return [*found]
        return [*self._parts.as_they_are(found, lambda: self.made)]

    @override
    def allocate(self, devices: Sequence[dp.Device]) -> dp.Allocation:
        state = self._state_when_awake()
        troubles = {one.id: _trouble(state, one) for one in devices}
        for one in devices:
            if one.part and one.part.on_demand:  # it was slow, or failed, when it was made
                troubles[one.id] = replace(troubles[one.id], delay=0.0, refusal="")
        self._delay(max((trouble.delay for trouble in troubles.values()), default=0.0))
        for device_id, trouble in troubles.items():
            _refuse(device_id, trouble)
        return super().allocate(devices)

    @override
    def allocate_with(
        self, devices: Sequence[dp.Device], parameters: SimulatedParameters
    ) -> dp.Allocation:
        self._delay(parameters.delay.total_seconds())
        if parameters.refusal:
            raise dp.AllocationError(parameters.refusal)
        return self.allocate(devices) + dp.Allocation(envs=parameters.environment)

    @override
    def make_part(self, part: dp.Device) -> dp.Device:
        trouble = _trouble(self._state_when_awake(), part)
        try:
            _refuse(part.id, trouble)
        except dp.AllocationError as error:
            if part.id not in self._parts.there():
                raise
            raise dp.DevicePluginError(str(error)) from error  # something of it is left
        return self._parts.make(part, lambda: self._delay(trouble.delay))

    @override
    def unmake_part(self, part: dp.Device, identity: str) -> None:
        trouble = _trouble(self._state_when_awake(), self._devices.get(part.id, part))
        self._delay(trouble.delay)
        if trouble.sticking and not trouble.unplugged:
            raise dp.DevicePluginError(f"{part.id}: {trouble.sticking}")
        self._parts.unmake(part.id, identity)

    def _delay(self, seconds: float) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._stopped, seconds)

    @override
    def reset(self, devices: Sequence[dp.Device]) -> None:
        """Do the same as ``recover``. It hangs as the plugin does, and needs what is plugged in."""
        state = self._state_when_awake()
        ids = [one.id for one in devices]
        if gone := next((one for one in ids if state.of(one).unplugged), ""):
            raise dp.DiscoveryError(f"{gone} is unplugged")
        with self._changed:
            self._life.add(Event(self.now, Action.RECOVER, ids))
            self._move_on()

    @override
    def changes(self, stop: Flag) -> Iterator[None]:
        with self._control.listening() if self._control else nullcontext():
            yield
            while not stop.is_set():
                self._ordered.clear()
                if self._advance():
                    yield
                self._rest(stop)

    def _rest(self, stop: Flag) -> None:
        """Wait until the next event, a request, or the time to check for a stop."""
        with self._changed:
            seconds = min(max(0.0, self._life.next_at - self.now), _LONGEST_WAIT)
        if self._control:
            self._ordered.wait(min(seconds, _LOOK_UP))
        else:
            stop.wait(seconds)

    @override
    def start(self, resource: str) -> None:
        with self._changed:
            self._served.add(resource)
            self._stopped = False

    @override
    def stop(self, resource: str) -> None:
        with self._changed:
            self._served.discard(resource)
            self._stopped = not self._served
            self._changed.notify_all()

    def _advance(self) -> bool:
        """Apply all due events. Return whether anything happened since the last call."""
        with self._changed:
            before = self._told
            self._move_on()
            self._told = self._life.state
            self._changed.notify_all()
            if self._told.crashed and not before.crashed:
                self._crash()
            return self._told is not before

    def _state_when_awake(self) -> State:
        """Return the present state. If the plugin hangs, do not return before that ends."""
        with self._changed:
            self._move_on()
            while self._life.state.hangs and not self._stopped:
                self._changed.wait(_LOOK_UP)
                self._move_on()
            return self._life.state

    def _move_on(self) -> None:
        """Apply all due events, and log what could not be."""
        if problem := self._happen():
            self._problems.say("hardware", "event of parts failed", error=problem)

    def _happen(self) -> str:
        """Apply all due events, also to the hardware. Return what could not be."""
        return self._parts.happen(self._life.advance(self.now), self._life.state)

    def _obey(self, request: bytes) -> bytes:
        try:
            events, ids = control.read(request, self._targets, self.now)
            with self._changed:
                self._move_on()
                control.add(events, self._life)
                problem, state = self._happen(), self._life.state
        except ValueError as error:
            return control.reply(error=str(error))
        self._ordered.set()
        if problem:
            return control.reply(error=problem)
        there = {key: f", {made}" for key, made in self._parts.there().items()}
        return control.reply(
            devices={
                one: f"{_trouble(state, self._devices[one])}{there.get(one, '')}" for one in ids
            },
            plugin="hanging" if state.hangs else "running",
        )


def _trouble(state: State, device: dp.Device) -> Trouble:
    """Return what is wrong with a device, or with what it is a part of."""
    own, whole = state.of(device.id), device.part.of.name if device.part else device.id
    return own if whole == device.id else own.beside(state.of(whole))


def _as_it_is(device: dp.Device, trouble: Trouble) -> dp.Device:
    if trouble.sickness:
        return replace(device, health=dp.Health.unhealthy(trouble.sickness, "simulated"))
    return replace(device, health=dp.Health.degraded(trouble.wear)) if trouble.wear else device


def _refuse(device_id: str, trouble: Trouble) -> None:
    """Raise the error that prevents the allocation of a device now."""
    if trouble.unplugged:
        raise dp.UnknownDeviceError(f"unknown device: {device_id}")
    if trouble.sickness:
        raise dp.UnhealthyDeviceError(f"unhealthy device: {device_id} ({trouble.sickness})")
    if trouble.refusal:
        raise dp.AllocationError(f"device {device_id}: {trouble.refusal}")
