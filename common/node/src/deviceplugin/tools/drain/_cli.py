"""The command line of ``deviceplugin drain``."""

import argparse
import json
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import Final

from deviceplugin._app.exit_status import FAILED, complain
from deviceplugin._attribution.podresources import PodResources
from deviceplugin._dra.claims.record import Record
from deviceplugin._platform.clock import MONOTONIC, Clock
from deviceplugin._platform.waiting import Waiter
from deviceplugin.errors import ConfigError, KubeletUnavailableError
from deviceplugin.tools import _command_line
from deviceplugin.tools._command_line import add_repeated, add_seconds, add_settings, settings_of

_CLAIMS: Final = "claims"
_OFFERED: Final = "offered"
"""The file that a process keeps while this node may have slices of its driver."""
_DESCRIPTION: Final = """\
Wait until nobody on this node holds devices through a protocol, and print who does.

Run it before a protocol is left for good: a pod whose claim is prepared stays Terminating without
the driver, and a container of the device plugin that is down cannot start again without the plugin.
First set protocol to the other one. The plugin then serves both, until all devices are free.

It changes nothing. Cordon the node, or delete the pods, if it should not take long."""

_EXAMPLES: Final = """\
examples:
  deviceplugin drain dra --timeout 1h
  deviceplugin drain device-plugin --resource example.com/gopher

--driver-dir and --pod-resources-socket are the plugin's settings, and have the same DP_
environment variables.

Exit status: 0 once nobody holds anything, 1 if somebody does at the end of --timeout, 2 if the
command line is wrong."""

_SETTINGS: Final = ("driver-dir", "pod-resources-socket")


def through_dra(driver_dir: Path, drivers: Collection[str]) -> list[str]:
    """Return a message for each claim that is prepared, and for each driver that still offers.

    Without names in ``drivers``, of all that there are. OSError: a directory cannot be read.
    """
    try:
        found = sorted(driver_dir.iterdir())
    except FileNotFoundError:
        return []
    wanted = [path for path in found if path.is_dir() and (not drivers or path.name in drivers)]
    return [f"{path.name}: {text}" for path in wanted for text in _of_driver(path)]


def _of_driver(directory: Path) -> Iterator[str]:
    if (directory / _OFFERED).exists():
        yield (
            "the driver still serves: set protocol to device-plugin, and leave the plugin running "
            "until this goes, some minutes after the last claim"
        )
    claims = directory / _CLAIMS
    for path in sorted(claims.iterdir()) if claims.is_dir() else ():
        if path.name.startswith(".") or not path.name.endswith((".json", ".json.bad")):
            continue
        try:
            record = Record.read(json.loads(path.read_bytes()))
        except FileNotFoundError:  # released meanwhile
            continue
        except (ValueError, RecursionError):
            yield f"{path} is not a readable record: deviceplugin doctor says what to do"
        else:
            yield f"{record.claim} has {', '.join(one.id for one in record.devices)}"


def through_plugin(service: PodResources, resources: Collection[str]) -> list[str]:
    """Return a message for each pod that holds devices of ``resources`` through a device plugin."""
    try:
        found = service.list()
    except KubeletUnavailableError as error:
        return [f"what pods hold is unknown: {error}"]
    if found.holds is None or not found.complete:
        return ["what pods hold is unknown: the kubelet lists no pods"]
    held: dict[tuple[str, str], set[str]] = {}
    for hold in found.holds:
        if hold.resource in resources:
            held.setdefault((hold.resource, "/".join(hold.owner)), set()).add(hold.device)
    return [
        f"{resource}: pod {pod} has {', '.join(sorted(devices))}"
        for (resource, pod), devices in sorted(held.items())
    ]


def main(argv: Sequence[str], clock: Clock = MONOTONIC) -> int:
    return _command_line.run(_parser(), argv, lambda options: _drain(options, clock), (OSError,))


def _drain(options: argparse.Namespace, clock: Clock) -> int:
    holders, waiter = _asking(options), Waiter(clock)
    end, before = clock.now() + options.timeout, None
    while found := holders():
        if found != before:
            print("\n".join(found), flush=True)  # noqa: T201
        before = found
        if clock.now() >= end:
            complain("deviceplugin drain", f"not drained within {options.timeout:g} s")
            return FAILED
        waiter.pause(min(options.interval, max(0.0, end - clock.now())))
    sys.stdout.write(f"nobody holds devices through {options.protocol}\n")
    return 0


def _asking(options: argparse.Namespace) -> Callable[[], list[str]]:
    settings = settings_of(options, _SETTINGS)
    if options.protocol == "dra":
        if options.resource:
            raise ConfigError("--resource is for device-plugin; dra has --driver")
        return lambda: through_dra(settings.driver_dir, options.driver)
    if options.driver or not options.resource:
        raise ConfigError("device-plugin needs --resource, and has no --driver")
    service = PodResources(settings.pod_resources_socket, lambda _method, _code: None)
    return lambda: through_plugin(service, options.resource)


def _parser() -> argparse.ArgumentParser:
    parser = _command_line.parser("drain", _DESCRIPTION, _EXAMPLES)
    parser.add_argument("protocol", choices=["dra", "device-plugin"], help="the protocol to leave")
    add_repeated(parser, "--driver", "NAME", "wait for this DRA driver only; can be repeated")
    words = "wait for this resource of a device plugin; can be repeated"
    add_repeated(parser, "--resource", "NAME", words)
    add_seconds(parser, "--timeout", "10m", "how long to wait", "1ms")
    add_seconds(parser, "--interval", "5s", "time between checks", "1s")
    add_settings(parser, _SETTINGS)
    return parser
