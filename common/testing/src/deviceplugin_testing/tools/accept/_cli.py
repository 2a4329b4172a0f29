"""The command line of ``accept``."""

import argparse
import os
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from importlib.metadata import entry_points
from pathlib import Path
from typing import Final

from deviceplugin.checks import Acceptance, unknown
from deviceplugin.errors import ConfigError
from deviceplugin.tools import _command_line
from deviceplugin_testing.tools.accept._node import Trial, TrialError, place
from deviceplugin_testing.tools.accept._report import Report
from deviceplugin_testing.tools.accept._steps import Steps

GROUP: Final = "deviceplugin.accept"
_LIMIT: Final = 170.0
"""Seconds for everything."""
_DESCRIPTION: Final = """\
Try a plugin's devices on this machine as containers would get them, and write a report.

The plugin reads the machine and serves a simulated kubelet, which allocates each device by each
strategy. A program is started with exactly what the plugin answered: device nodes and libraries in
namespaces of its own, and nothing else of the driver. There it calls the driver. It takes three
minutes at most, needs root and no cluster, and never resets a device or changes a setting of it.
While others use a device, nothing is started on it."""
_EXAMPLES: Final = """\
examples:
  lamp-device-plugin accept
  lamp-device-plugin accept --provoke --report report.txt
  lamp-device-plugin accept -- --config=/etc/lamp.yaml

Exit status: 0 if nothing failed, 1 if something did or there is no device, 2 if the command line is
wrong or the command cannot be run, 130 if it was interrupted."""


def main(argv: Sequence[str]) -> int:
    """Run ``deviceplugin accept`` with the arguments ``argv`` and return its exit status."""
    words, flags = _command_line.split(argv)
    act = partial(_run, flags=flags or ())
    return _command_line.run(_parser(), words, act, (TrialError, OSError), starts=True)


def _run(options: argparse.Namespace, flags: Sequence[str]) -> int:
    acceptance = _acceptance(options.plugin)
    _check(options, acceptance, flags)
    report = Report(f"{options.plugin}-device-plugin {' '.join(sys.argv[1:])}", options.report)
    with _limited(report), place() as folder:
        steps = Steps(acceptance, Trial(acceptance, flags, folder), report)
        steps.run(options.strategy or [*acceptance.strategies], provokes=options.provoke)
    return report.write()


@contextmanager
def _limited(report: Report) -> Iterator[None]:
    """Write the report and exit when the time is over; what was started ends with this process."""

    def end() -> None:
        report.add("time", [unknown("the rest", f"not tried: {_LIMIT:g} s are over")])
        status = report.write()
        sys.stdout.flush()
        os._exit(status)

    timer = threading.Timer(_LIMIT, end)  # a thread, since this one may hang in the kernel
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _check(options: argparse.Namespace, acceptance: Acceptance, flags: Sequence[str]) -> None:
    _command_line.check_names("strategy", options.strategy, acceptance.strategies)
    taken = {word.partition("=")[0] for each in acceptance.strategies.values() for word in each}
    if given := [word for word in flags if word.partition("=")[0] in taken]:
        raise ConfigError(f"{given[0]}: each strategy is tried: choose by --strategy")
    if options.provoke and acceptance.provoke is None:
        raise ConfigError(f"--provoke: {options.plugin} has no error that leaves a device healthy")
    if os.geteuid():
        raise ConfigError("needs root: it makes device nodes and namespaces")
    if not os.access(options.report.parent, os.W_OK) or options.report.is_dir():
        raise ConfigError(f"--report {options.report}: cannot be written: name another file")


def _acceptance(name: str) -> Acceptance:
    found = {one.name: one for one in entry_points(group=GROUP)}
    if name not in found:
        known = ", ".join(sorted(found)) or "none"
        raise ConfigError(f"{name!r} is not a plugin with an acceptance: installed are {known}")
    acceptance: Acceptance = found[name].load()
    return acceptance


def _parser() -> argparse.ArgumentParser:
    usage = "NAME-device-plugin accept [options] [-- FLAG OF THE PLUGIN...]"
    parser = _command_line.parser("accept", _DESCRIPTION, _EXAMPLES, usage)
    add = parser.add_argument
    add("plugin", help="which plugin; NAME-device-plugin accept passes its own name")
    words = "also provoke an application's error on one device that nobody has open"
    add("--provoke", action="store_true", help=words)
    words = "try this strategy only; can be repeated"
    _command_line.add_repeated(parser, "--strategy", "NAME", words)
    words = "write the report to FILE (accept.txt)"
    add("--report", type=Path, default=Path("accept.txt"), metavar="FILE", help=words)
    return parser
