"""A kubelet and the plugin that runs on it."""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from threading import Event
from typing import Final

from deviceplugin.proto.v1beta1 import HEALTHY
from deviceplugin_testing.conformance._check import Abandoned, Failed
from deviceplugin_testing.conformance._kubelet import Listed, ObservedKubelet, Registered
from deviceplugin_testing.conformance._process import Plugin
from deviceplugin_testing.conformance._subject import Limits, Place, Subject, free_port
from deviceplugin_testing.simulator import SimulatedKubelet

_DIAL_TIMEOUT: Final = 10.0
"""Seconds, as in the kubelet."""
_OTHERS: Final = 0.3
"""Seconds to wait for the lists of other resources after the first one."""


class CheckedProcess:
    """One process at a time, on a kubelet that may be waited for."""

    kubelet: SimulatedKubelet
    noun = "plugin"

    def __init__(self, subject: Subject, place: Place, limits: Limits, over: Event) -> None:
        self._subject = subject
        self._place = place
        self._over = over
        self.limits = limits
        self.plugin: Plugin | None = None

    @property
    def pid(self) -> int:
        """The process id; 0 if it has not been started."""
        return self.plugin.pid if self.plugin is not None else 0

    def kill(self) -> None:
        if self.plugin is not None:
            self.plugin.kill()

    def terminate(self, timeout: float) -> float | None:
        """Send SIGTERM and return the seconds until it exits; None if it does not."""
        return self.plugin.terminate(timeout) if self.plugin is not None else 0.0

    def wait(self, condition: Callable[[], object], timeout: float) -> bool:
        """Return whether ``condition()`` came true; raise ``Failed`` if the process ends."""
        return self._wait(condition, timeout, self._check_running)

    def observe(self, seconds: float) -> None:
        """Let ``seconds`` pass; raise ``Failed`` at once if the process ends."""
        self.wait(lambda: False, seconds)

    def _wait(
        self, condition: Callable[[], object], timeout: float, check: Callable[[], None]
    ) -> bool:
        def holds() -> bool:
            if self._over.is_set():
                raise Abandoned
            if condition():
                return True
            check()
            return False

        try:
            return self.kubelet.wait(holds, timeout=timeout)
        except TimeoutError:
            return False

    def _check_running(self) -> None:
        if self.plugin is not None and self.plugin.status is not None:
            words = self.plugin.last_words()
            raise Failed(
                f"the {self.noun} ended with status {self.plugin.status}" + (words and f": {words}")
            )


class PluginNode(CheckedProcess):
    """One kubelet, with one process of the plugin at a time."""

    kubelet: ObservedKubelet

    def __init__(
        self, subject: Subject, place: Place, limits: Limits, seed: int, over: Event
    ) -> None:
        super().__init__(subject, place, limits, over)
        self.resource = subject.resource
        self.kubelet = ObservedKubelet(
            place.root,
            version=subject.kubelet_version,
            seed=seed,
            hello=limits.hello,
            dial_timeout=min(_DIAL_TIMEOUT, limits.start),
        )
        self.placeholders = place.placeholders()

    def launch(self, *, beside: bool = False) -> Plugin:
        """Start the plugin, or ``beside`` the one that runs another one with an HTTP port."""
        own = {"http_address": f"127.0.0.1:{free_port()}"} if beside else {}
        self.plugin = Plugin(
            self._subject.command,
            placeholders={**self.placeholders, **own},
            output=self._place.scratch / "output",
        )
        return self.plugin

    def close(self) -> None:
        self.kill()
        self.kubelet.stop()

    @contextmanager
    def guarded(self) -> Iterator[None]:
        """Kill the plugin if the context takes too long, because admissions have no timeout."""
        killer = threading.Timer(self.limits.within, self.kill)
        killer.start()
        try:
            yield
        finally:
            killer.cancel()
            killer.join()

    # Waiting

    def await_gone(self) -> None:
        """Wait until the kubelet has noticed that the plugin ended, after a check ended it."""
        self._wait(
            lambda: self.resource not in self.kubelet.registered, self.limits.within, lambda: None
        )

    def wait_up(self) -> str:
        """Wait until the plugin's devices are listed; return the problem if they are not."""
        kubelet, within = self.kubelet, self.limits.start
        try:
            if not self.wait(lambda: kubelet.registrations(self.resource or None), within):
                wanted = f" for {self.resource}" if self.resource else ""
                return (
                    f"no call of Register{wanted} within {within:g} s; a plugin may wait until it "
                    "has a device: give it one"
                )
            accepted = self.wait(
                lambda: any(r.answered_at and not r.refusal for r in self._calls()), within
            )
            if not accepted:
                last = self._calls()[-1]
                return f"not registered: {last.refusal or 'no answer'}"
            if not self.wait(lambda: self.lists, within):
                return f"no list of devices within {within:g} s"
            self._choose()
        except Failed as end:
            return str(end)
        return ""

    def _calls(self) -> Sequence[Registered]:
        return self.kubelet.registrations(self.resource or None)

    def _choose(self) -> None:
        if not self.resource:
            self.observe(_OTHERS)
            listed = {each.resource for each in self.kubelet.lists()}
            self.resource = min(
                listed, key=lambda resource: (not self.kubelet.healthy(resource), resource)
            )

    @property
    def up(self) -> bool:
        """Whether the kubelet runs, and the plugin runs, is registered and has sent a list."""
        return (
            self.kubelet.running
            and self.plugin is not None
            and self.plugin.status is None
            and self.resource in self.kubelet.registered
            and bool(self.lists)
        )

    def back(self, since: float) -> bool:
        """Return whether the resource is connected, and has been listed after ``since``."""
        registered = self.resource in self.kubelet.registered
        return registered and any(each.at > since for each in self.lists)

    def back_after(
        self, what: str, happens: Callable[[], object], *, started: bool = False
    ) -> float:
        """Call ``happens``, which makes the plugin register again, then do as ``await_back``."""
        begin = time.monotonic()
        happens()
        return self.await_back(begin, what, started=started)

    def await_back(self, since: float, after: str, *, started: bool = False) -> float:
        """Return the seconds until the plugin registers again; raise ``Failed`` if it does not."""
        limit = self.limits.start if started else self.limits.within
        if not self.wait(lambda: self.back(since), limit):
            calls = [r for r in self.kubelet.registrations(self.resource) if r.at > since]
            why = calls[-1].refusal if calls else ""
            why = why or (self.plugin.last_words() if self.plugin else "")
            raise Failed(f"not registered {limit:g} s after {after}" + (why and f": {why}"))
        return min(each.at for each in self.lists if each.at > since) - since

    # The resource

    @property
    def lists(self) -> list[Listed]:
        """All lists of the resource so far, over all starts of the kubelet."""
        return self.kubelet.lists(self.resource or None)

    @property
    def healthy(self) -> list[str]:
        """Ids of the healthy devices in the last list, sorted and without duplicates."""
        last = self.lists[-1:]
        return sorted({d.ID for each in last for d in each.devices if d.health == HEALTHY})

    @property
    def unhealthy(self) -> list[str]:
        last = self.lists[-1:]
        return sorted({d.ID for each in last for d in each.devices if d.health != HEALTHY})
