"""The command line of ``accept``."""

import argparse
import os
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, Final, NoReturn

from deviceplugin._app.exit_status import FAILED, complain
from deviceplugin.checks import Acceptance, Verdict
from deviceplugin.errors import ConfigError
from deviceplugin.tools import _command_line
from deviceplugin_testing.tools.accept._node import Trial, TrialError, place
from deviceplugin_testing.tools.accept._report import Report
from deviceplugin_testing.tools.accept._steps import Steps

GROUP: Final = "deviceplugin.accept"
_LIMIT: Final = 170.0
"""Seconds for all steps."""
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
  lamp-device-plugin accept --provoke --report report.md
  lamp-device-plugin accept -- --config=/etc/lamp.yaml

Exit status: 0 if nothing failed, 1 if something did or there is no device, 2 if the command line is
wrong or the command cannot be run, 130 if it was interrupted."""


def main(argv: Sequence[str]) -> int:
    """Run ``deviceplugin accept`` with the arguments ``argv`` and return its exit status."""
    words, flags = _command_line.split(argv)
    act = partial(_run, flags=flags or ())
    return _command_line.run(_parser(), words, act, (TrialError, OSError))


def _run(options: argparse.Namespace, flags: Sequence[str]) -> int:
    acceptance = _acceptance(options.plugin)
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
    report = Report(
        options.plugin, " ".join([*_shown(options), *(["--", *flags] if flags else [])])
    )
    with _interrupted_by_signals(), place() as folder:
        trial = Trial(acceptance, flags, folder, _LIMIT)
        steps = Steps(acceptance, trial, report, is_idle=options.assume_idle)
        steps.run(options.strategy or [*acceptance.strategies], provokes=options.provoke)
    return _finish(options.report, report, has_devices=bool(steps.devices))


def _finish(path: Path, report: Report, *, has_devices: bool) -> int:
    passed = has_devices and not report.count(Verdict.FAILURE)
    try:
        path.write_text(report.page(), encoding="utf-8")
    except OSError as error:  # such as a full disk: what was found is not lost
        print(report.page())  # noqa: T201
        complain("deviceplugin accept", f"{path}: {error.strerror}: the report is above")
        return FAILED
    print(f"{report.summary}; the report is in {path}")  # noqa: T201
    return 0 if passed else FAILED


def _acceptance(name: str) -> Acceptance:
    found = {one.name: one for one in entry_points(group=GROUP)}
    if name not in found:
        known = ", ".join(sorted(found)) or "none"
        raise ConfigError(f"{name!r} is not a plugin with an acceptance: installed are {known}")
    acceptance: Any = found[name].load()
    if not isinstance(acceptance, Acceptance):
        raise ConfigError(f"{name}: its entry point is not an Acceptance")
    return acceptance


def _shown(options: argparse.Namespace) -> list[str]:
    names = [f"--{name}" for name in ("provoke", "assume-idle") if vars(options)[_key(name)]]
    return [*names, *(f"--strategy={one}" for one in options.strategy)]


def _key(name: str) -> str:
    return name.replace("-", "_")


@contextmanager
def _interrupted_by_signals() -> Iterator[None]:
    """Let SIGTERM and SIGHUP do what Ctrl-C does: everything that was started is ended."""

    def interrupt(_number: int, _frame: object) -> NoReturn:
        raise KeyboardInterrupt

    kinds = (signal.SIGTERM, signal.SIGHUP)
    before = {kind: signal.signal(kind, interrupt) for kind in kinds}
    try:
        yield
    finally:
        for kind, action in before.items():
            signal.signal(kind, action)


def _parser() -> argparse.ArgumentParser:
    usage = "NAME-device-plugin accept [options] [-- FLAG OF THE PLUGIN...]"
    parser = _command_line.parser("accept", _DESCRIPTION, _EXAMPLES, usage)
    add = parser.add_argument
    add("plugin", help="which plugin; NAME-device-plugin accept passes its own name")
    words = "also provoke an application's error on one device that nobody has open"
    add("--provoke", action="store_true", help=words)
    words = "start programs even if users of devices cannot be seen from here; not for --provoke"
    add("--assume-idle", action="store_true", help=words)
    words = "try this strategy only; can be repeated"
    _command_line.add_repeated(parser, "--strategy", "NAME", words)
    words = "write the report to FILE (accept.md)"
    add("--report", type=Path, default=Path("accept.md"), metavar="FILE", help=words)
    return parser
