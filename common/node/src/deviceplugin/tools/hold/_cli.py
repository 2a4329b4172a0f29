"""The command lines of ``deviceplugin hold`` and ``deviceplugin release``."""

import argparse
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any, Final

from deviceplugin._app.exit_status import FAILED, complain
from deviceplugin._app.hold_folder import FOLDER
from deviceplugin._app.hold_progress import LET_GO, NOT_REPAIRED, RESET
from deviceplugin._app.hold_socket import SOCKET, ask
from deviceplugin._app.text_table import aligned
from deviceplugin._config.settings import Settings
from deviceplugin._platform.clock import MONOTONIC, Clock
from deviceplugin._platform.waiting import Waiter
from deviceplugin.errors import ConfigError, DevicePluginError
from deviceplugin.tools import _command_line
from deviceplugin.tools._command_line import add_output, add_seconds, add_settings, settings_of

_SETTINGS: Final = ("plugin-dir", "registry-dir")
_POLL: Final = 1.0
_ANSWER: Final = 60.0
"""Seconds: a release waits until the plugin has checked the device."""
RELEASED: Final = "released"
_WANTED: Final = {"": LET_GO, "reset": RESET, "release": RELEASED}
_HEADER: Final = ("DEVICE", "FOR", "STATE", "USED BY", "REASON")
DESCRIPTION: Final = """\
Keep pods off a device, and have its plugin let go of it: for a reset, a change of its partitions or
a reload of its driver, while the other devices work. Without DEVICE, list what is held.

No new pod gets the device. Pods that have it keep it; once they have ended, the plugin closes
whatever it has open of it, and the state is "let go". All parts of the same hardware are held,
such as its shares. A restart of the plugin changes nothing. End it with release.

DEVICE is an id, the name of its hardware, such as a PCI address, or the value of an attribute."""
EXAMPLES: Final = """\
examples:
  {command} hold {node}GPU-8f2a --reason "reset after XID 79" --dry-run   who has it now
  {command} hold {node}GPU-8f2a --reason "reset after XID 79" --wait      until it can be reset
  {command} release {node}GPU-8f2a
  {command} hold {node}sensor-3 --reason "ticket 12" --repair --wait      until it is released

Exit status: 0 if it was done, 1 if not, or not within --timeout, 2 if the command line is wrong."""
_RELEASE: Final = "Give a held device to pods again, once its plugin finds that it can be used."

Reply = Mapping[str, Any]


class NoPluginError(DevicePluginError):
    """No plugin answers."""


def hold(argv: Sequence[str], clock: Clock = MONOTONIC) -> int:
    return _command_line.run(
        parser("hold"), argv, lambda options: _hold(options, clock), (DevicePluginError,)
    )


def release(argv: Sequence[str]) -> int:
    return _command_line.run(parser("release"), argv, _release, (DevicePluginError,))


def _hold(options: argparse.Namespace, clock: Clock) -> int:
    if not options.device:
        if options.reason or options.wait or options.dry_run or _then(options):
            raise ConfigError("name the DEVICE that is to be held")
        replies = ask_all(settings_of(options, _SETTINGS), {"do": "list"})
        return _show(options, replies.values())
    if not options.reason:
        raise ConfigError('--reason is missing: say what the hold is for, as in "replace its fan"')
    who, reply = _one(options, "hold")
    _show(options, [reply])
    return _wait(options, who, clock) if options.wait and not options.dry_run else 0


def _release(options: argparse.Namespace) -> int:
    return _show(options, [_one(options, "release")[1]])


def ask_all(settings: Settings, request: Reply, *, only: str = "*") -> Mapping[str, Reply]:
    """Return what each plugin whose socket can be seen answers, or ``only`` one, by its name.

    NoPluginError if none does.
    """
    replies: dict[str, Reply] = {}
    silent: list[str] = []
    for directory in (settings.plugin_dir, settings.registry_dir):
        for path in sorted((directory / FOLDER).glob(f"{only}/{SOCKET}")):
            try:
                replies[path.parent.name] = ask(path.parent, request, _ANSWER)
            except (OSError, ValueError) as error:
                silent.append(f"{path.parent} does not answer: {error}")
    if not replies:
        where = settings.plugin_dir / FOLDER
        silent = silent or [f"no plugin has a socket in {where}, as far as this user can see"]
        raise NoPluginError("\n".join(silent))
    if silent:
        complain("deviceplugin hold", "\n".join(silent))
    return replies


def _one(options: argparse.Namespace, what: str) -> tuple[str, Reply]:
    """Ask the plugin that has the device; raise if none has, or several have."""
    settings = settings_of(options, _SETTINGS)
    request = {
        "do": what,
        "device": options.device,
        "reason": getattr(options, "reason", ""),
        "resource": getattr(options, "resource", ""),
        "all": getattr(options, "all", False),
        "then": _then(options),
    }
    tried = ask_all(settings, {**request, "dry_run": True})
    able = [name for name, reply in tried.items() if "error" not in reply]
    if not able:
        raise NoPluginError("\n".join(str(reply["error"]) for reply in tried.values()))
    if len(able) > 1:
        raise ConfigError(f"{', '.join(able)} have {options.device!r}: give --resource")
    if options.dry_run:
        return able[0], tried[able[0]]
    reply = ask_all(settings, request, only=able[0])[able[0]]
    if "error" in reply:
        raise NoPluginError(str(reply["error"]))
    return able[0], reply


def _then(options: argparse.Namespace) -> str:
    chosen = {"reset": "reset", "repair": "release"}
    return next((then for name, then in chosen.items() if getattr(options, name, False)), "")


def _wait(options: argparse.Namespace, who: str, clock: Clock) -> int:
    """Wait until the plugin has done with the device what it was asked for."""
    settings, waiter, before = settings_of(options, _SETTINGS), Waiter(clock), ""
    end, wanted = clock.now() + options.timeout, _WANTED[_then(options)]
    while True:
        state = _state(settings, who, options.device)
        if state == wanted:
            sys.stdout.write(f"{options.device} is {state}\n")
            return 0
        if state == RELEASED:
            raise NoPluginError(f"{options.device} is not held any more")
        if state.startswith(NOT_REPAIRED):
            complain("deviceplugin hold", state)
            return FAILED
        if state != before:
            complain("deviceplugin hold", state)
        before = state
        if clock.now() >= end:
            late = f"not {wanted} within {options.timeout:g} s; it stays held"
            complain("deviceplugin hold", late)
            return FAILED
        waiter.pause(min(_POLL, max(0.0, end - clock.now())))


def _state(settings: Settings, who: str, device: str) -> str:
    try:
        reply = ask_all(settings, {"do": "list"}, only=who)[who]
    except NoPluginError as error:  # such as one that is started again
        return str(error)
    if "error" in reply:
        return str(reply["error"])
    for one in reply.get("holds", ()):
        if device == one["device"] or device in {each["id"] for each in one["devices"]}:
            return str(one["state"])
    return RELEASED


def _show(options: argparse.Namespace, replies: Any) -> int:
    holds = [one for reply in replies for one in reply.get("holds", ())]
    _command_line.write(
        options, lambda: table(holds), lambda: _command_line.document(1, {"holds": holds})
    )
    return 0


def table(holds: Sequence[Mapping[str, Any]]) -> str:
    if not holds:
        return "nothing is held\n"
    rows = [_HEADER, *_rows(holds, time.time())]
    return "".join(f"{line}\n" for line in aligned(rows))


def _rows(holds: Sequence[Mapping[str, Any]], now: float) -> Iterator[tuple[str, ...]]:
    for one in holds:
        lasted = timedelta(seconds=max(0, round(now - one["since"])))
        ids = sorted({each["id"] for each in one["devices"]} - {one["device"]})
        also = f" ({', '.join(ids[:3])}{', ...' if len(ids) > 3 else ''})" if ids else ""  # noqa: PLR2004
        users = "unknown" if one["users"] is None else ", ".join(one["users"]) or "-"
        yield f"{one['device']}{also}", str(lasted), str(one["state"]), users, str(one["reason"])


def parser(command: str, *, node: bool = False) -> argparse.ArgumentParser:
    """Return the parser of ``hold`` or ``release``; with ``node``, for kubectl's plugin."""
    program = "kubectl deviceplugin" if node else "deviceplugin"
    examples = EXAMPLES.format(command=program, node="node-7 " if node else "")
    about = DESCRIPTION if command == "hold" else _RELEASE
    found = _command_line.parser(command, about, examples)
    add = found.add_argument
    if node:
        add("node", metavar="NODE", help="the node, by its name in the cluster")
    optional = "?" if command == "hold" else None
    add("device", metavar="DEVICE", nargs=optional, default="", help="the device")
    if command == "hold":
        add("--reason", default="", metavar="TEXT", help="what the hold is for; others see it")
        add("--resource", default="", metavar="NAME", help="if several resources have the name")
        add("--all", action="store_true", help="hold all devices that the name fits, such as parts")
        after = found.add_mutually_exclusive_group()
        words = "once it is let go, have its plugin reset it, if that can; it stays held"
        after.add_argument("--reset", action="store_true", help=words)
        words = "--reset, and release it once a discovery finds it healthy"
        after.add_argument("--repair", action="store_true", help=words)
        add("--wait", action="store_true", help="wait until it is let go, or reset, or released")
        add_seconds(found, "--timeout", "10m", "how long to wait", "1ms")
    add("--dry-run", action="store_true", help="change nothing; show the device, and who has it")
    add_output(found)
    if not node:
        add_settings(found, _SETTINGS)
    return found
