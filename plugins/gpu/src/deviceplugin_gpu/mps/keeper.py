"""The life of one MPS control daemon: started, limited, watched, replaced, ended."""

import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from threading import Thread
from typing import Final

from typing_extensions import override

from deviceplugin.kit.backoff import Backoff, Waiter
from deviceplugin.kit.log import Problems
from deviceplugin_gpu.mps.control import Control, ControlError
from deviceplugin_gpu.mps.daemons import Daemon

log = logging.getLogger(__name__)

_LOOK: Final = 1.0
"""Seconds between two checks of the process and its socket, which ask nobody."""
_ASK: Final = 10.0
_SILENCES: Final = 3
_AGAIN: Final = 1.0
_START: Final = 30.0
_GRACE: Final = 8.0
"""Seconds to end by itself; the pod has 15."""


class Keeper(Thread):
    """Keeps a control daemon as it is ``wanted``, which others set; None ends it.

    It is ready once it has its limits. It is replaced by one with others, and ended, when it has no
    clients; only a shutdown does not wait for them. ``publish`` makes ``state`` known, and raises
    OSError where that cannot be done: then nothing is started.
    """

    def __init__(
        self, name: str, control: Control, wanted: Daemon, publish: Callable[[], None]
    ) -> None:
        super().__init__(name=name, daemon=True)
        self.control = control
        self.wanted: Daemon | None = wanted
        self.state = replace(wanted, problem="it is not started yet")
        self.waiter = Waiter()
        self._publish = publish
        self._serves = wanted
        self._clients = self._silences = 0
        self._ask_at = 0.0
        self._backoff = Backoff(first=_AGAIN, longest=60.0)
        self._problems = Problems(log)

    @override
    def run(self) -> None:
        """Keep it until it is not wanted, or until the waiter is over."""
        while not self.waiter.is_over() and (self.wanted or self.control.process):
            pause = _LOOK
            try:
                self._tend()
            except (ControlError, OSError) as error:
                self._fail(str(error))
                pause = self._backoff.next_wait()
            self.waiter.until_poked(pause)
        if self._clients and self.control.process:
            self._fail(self._dead("gpu-mps-daemon was stopped"))
        self.control.end(_GRACE)

    def want(self, wanted: Daemon | None) -> None:
        """Have it be another one, or none, as soon as it has no clients."""
        self.wanted, self._ask_at = wanted, 0.0
        self.waiter.poke()

    def _tend(self) -> None:
        if not self.control.process:
            if self.wanted:
                self._start(self.wanted)
        elif lost := self.control.death() or self.control.displaced():
            self.control.end()
            raise ControlError(self._dead(lost))
        elif self.waiter.clock.now() >= self._ask_at:
            self._ask()

    def _start(self, wanted: Daemon) -> None:
        self._clients = self._silences = 0
        self._show(replace(wanted, problem="it is being started"))
        self.control.start(wanted.devices)
        try:
            self._await_answer()
            self.control.limit(wanted)
        except (ControlError, OSError) as error:
            why = self.control.death() or str(error)
            self.control.end()
            raise ControlError(why) from error
        self._serves = wanted
        self._ready()
        log.info("MPS control daemon started", extra={"daemon": self.name})

    def _await_answer(self) -> None:
        def answers() -> bool:
            with suppress(ControlError):
                self.control.ask("get_server_list")
                return True
            return bool(self.control.death())

        if not self.waiter.until(answers, _START, every=0.2):
            raise ControlError(f"it did not answer within {_START:g} s")

    def _ask(self) -> None:
        """Count its clients, and end it if it is to be another one and has none."""
        try:
            self._clients, self._silences = self.control.clients(), 0
        except ControlError as error:
            self._silences += 1
            if self._silences < _SILENCES:
                raise
            self.control.end()
            raise ControlError(self._dead(f"{error}, {_SILENCES} times")) from None
        self._backoff.reset()
        self.control.bound_logs()
        if self.wanted == self._serves or self._clients:
            self._ready()
            return
        self._show(replace(self._serves, problem="it is being replaced"))
        self.control.end(_GRACE)
        log.info("MPS control daemon ended", extra={"daemon": self.name})
        self.waiter.poke()

    def _ready(self) -> None:
        self._ask_at = self.waiter.clock.now() + _ASK
        if self._problems.over("problem"):
            log.info("MPS control daemon answers again", extra={"daemon": self.name})
        self._show(self._serves)

    def _dead(self, why: str) -> str:
        clients = f"its clients ({self._clients} when last counted)"
        return f"{why}; {clients} lost their CUDA contexts: restart their pods"

    def _fail(self, why: str) -> None:
        self._problems.say("problem", "MPS control daemon failed", daemon=self.name, problem=why)
        with suppress(OSError):  # the next attempt says so
            self._show(replace(self.state, problem=why))

    def _show(self, state: Daemon) -> None:
        self.state = state
        self._publish()
