"""The health of devices, which is checked during discovery and never during an allocation."""

import os
import select
import signal
import stat
import subprocess
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from threading import Lock
from time import monotonic
from typing import Final

import deviceplugin as dp
from deviceplugin.kit.configuration import bounded
from deviceplugin.kit.health import SteadyHealth, Tolerance
from deviceplugin.kit.sysfs import shown
from deviceplugin_generic.configuration import templates
from deviceplugin_generic.configuration.entries import Check
from deviceplugin_generic.discovery.matching import Match
from deviceplugin_generic.discovery.selecting import has_properties
from deviceplugin_generic.discovery.tree import has_node

_GRACE: Final = 0.5
"""Seconds within which what was killed ends."""
_MOST_READ: Final = 4096


class Checker:
    """Checks devices. It remembers results: one failed check need not make one unhealthy."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._verdicts = SteadyHealth[str](clock=clock)
        self._commands, self._resets = _Commands(), _Commands()
        self._lock = Lock()
        """Held during a check."""
        self._resetting: set[str] = set()

    def health(
        self, key: str, match: Match, check: Check, properties: Mapping[str, str]
    ) -> dp.Health:
        """Return the health of the device ``key``. Its existence is checked each time."""
        existing = _bounded(existence(match))
        if not existing or check.is_trivial:
            self._verdicts.forget(key)
            return existing
        known = self._verdicts.latest(key, within=check.interval)
        if known is not None:
            return known
        with self._lock:
            if key in self._resetting:
                return dp.Health.unhealthy("it is being reset", "check")
            reason = _looked_at(match, check)
            if not reason and check.command:
                reason = self._commands.problem(key, check.command, check.timeout, properties)
        found = dp.Health.unhealthy(bounded(reason), "check") if reason else dp.Health()
        tolerance = Tolerance(failures=check.failures, successes=check.successes)
        return self._verdicts.judge(key, found, tolerance)

    def reset(self, key: str, check: Check, properties: Mapping[str, str]) -> None:
        """Run the command that resets the device ``key``; DiscoveryError if it does not succeed.

        The device is not checked meanwhile. This does not return before the command has ended.
        """
        with self._lock:
            self._resetting.add(key)
        try:
            command, timeout = check.reset, check.reset_timeout
            reason = self._resets.problem(key, command, timeout, properties)
            self._resets.join(key)
        finally:
            self._verdicts.forget(key)
            self._resetting.discard(key)
        if reason:
            raise dp.DiscoveryError(bounded(reason))

    def forget_all_but(self, keys: Collection[str]) -> None:
        """Forget devices that are gone. Their checks start over when they come back."""
        self._verdicts.keep(keys)


def _bounded(health: dp.Health) -> dp.Health:
    return health or dp.Health.unhealthy(bounded(health.reason), "missing")


def existence(match: Match) -> dp.Health:
    """Return whether all nodes and mounts exist, and nothing is known that makes them useless.

    A device in sysfs exists, even if this process cannot see its node.
    """
    if match.problem:
        return dp.Health.unhealthy(match.problem)
    if match.in_sysfs:
        return dp.Health()
    for node in match.nodes:
        reason = _missing(node.host_path, is_node=True)
        if reason:
            return dp.Health.unhealthy(reason)
    reasons = (_missing(mount.host_path, is_node=False) for mount in match.mounts)
    reason = next(filter(None, reasons), "")
    return dp.Health.unhealthy(reason) if reason else dp.Health()


def _missing(path: str, *, is_node: bool) -> str:
    try:
        mode = os.stat(path).st_mode  # noqa: PTH116 - thousands of these
    except OSError as error:
        return f"{path}: {error.strerror}"
    if not is_node or stat.S_ISCHR(mode) or stat.S_ISBLK(mode):
        return ""
    if stat.S_ISDIR(mode):  # it represents the nodes in it
        return "" if has_node(path) else f"{path}: no device node in this directory"
    return f"{path}: not a device node"


def _looked_at(match: Match, check: Check) -> str:
    """Return what is wrong with a device by all that is checked but the command."""
    reason = ""
    if check.open:
        reason = _opened([node.host_path for node in match.nodes])
    if not reason and check.properties:
        known = match.device is not None and has_properties(match.device, check.properties)
        wanted = ", ".join(f"{name}={value}" for name, value in check.properties.items())
        reason = "" if known else f"udev does not have {wanted}"
    return reason


def _opened(paths: Sequence[str]) -> str:
    for path in paths:
        try:
            os.close(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC))
        except OSError as error:
            return f"{path}: cannot be opened: {error.strerror}"
    return ""


class _Commands:
    """Runs commands, never two for one device, and never waits for one without limit."""

    def __init__(self) -> None:
        self._stuck: dict[str, subprocess.Popen[bytes]] = {}

    def problem(
        self, key: str, words: tuple[str, ...], timeout: float, properties: Mapping[str, str]
    ) -> str:
        """Return why the command ``words`` for ``key`` does not succeed; empty if it does.

        It gets properties of the device as words of their own, and as variables.
        """
        given = {name: properties.get(name, "") for name in templates.COMMAND}
        if odd := next((name for name, value in given.items() if "\0" in value), ""):
            return f"{words[0]}: {odd} {shown(given[odd])} has a zero byte"
        try:
            command = templates.command(words, given)
        except ValueError as error:
            return f"{words[0]}: {error}"
        env = {**os.environ, **{templates.variable(name): given[name] for name in given}}
        try:
            return f"{command[0]}: {why}" if (why := self._run(key, command, env, timeout)) else ""
        except (OSError, ValueError) as error:
            return f"{command[0]}: {getattr(error, 'strerror', None) or error}"

    def join(self, key: str) -> None:
        """Wait until a command for ``key`` that does not end, although it was killed, has."""
        if stuck := self._stuck.get(key):
            stuck.wait()

    def _run(self, key: str, command: list[str], env: Mapping[str, str], timeout: float) -> str:
        stuck = self._stuck.get(key)
        if stuck and stuck.poll() is None:  # as while the kernel waits for hardware
            return "does not end, although it was killed"
        until = monotonic() + timeout
        ours, theirs = os.pipe()
        with os.fdopen(ours, "rb", 0) as said:
            with os.fdopen(theirs, "wb") as pipe:
                done = subprocess.Popen(  # noqa: S603 - from the configuration
                    command,
                    env=env,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=pipe,
                    start_new_session=True,  # so that what it starts can be ended with it
                )
            text = _beginning(said.fileno(), until)
        try:
            status = done.wait(max(0, until - monotonic()))
        except subprocess.TimeoutExpired:
            self._end(key, done)
            return f"no answer within {timeout:g} s"
        return f"exit status {status}{': ' if text else ''}{text}" if status else ""

    def _end(self, key: str, running: "subprocess.Popen[bytes]") -> None:
        with suppress(OSError):  # it runs as another user
            os.killpg(running.pid, signal.SIGKILL)
        try:
            running.wait(_GRACE)
        except subprocess.TimeoutExpired:
            others = {one: each for one, each in self._stuck.items() if each.poll() is None}
            self._stuck = {**others, key: running}


def _beginning(file: int, until: float) -> str:
    """Read what a process says until it ends, or until then, and return the beginning."""
    said, ready = b"", select.poll()
    ready.register(file, select.POLLIN)
    while (left := until - monotonic()) > 0 and ready.poll(left * 1000):
        if not (more := os.read(file, _MOST_READ)):
            break
        said = (said + more)[:_MOST_READ]
    return " ".join(said.decode(errors="replace").split())[:200]
