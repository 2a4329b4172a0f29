"""The command line of ``deviceplugin bench``."""

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from deviceplugin.bench import _measure, _plan, _report
from deviceplugin.bench._figures import Section
from deviceplugin.bench._plan import QUICK, Plan
from deviceplugin.bench._subject import BenchError, Subject

_FAILED: Final = 1
_USAGE: Final = 2
_CALIBRATIONS: Final = 50

_DESCRIPTION: Final = """\
Measure a device plugin from outside, whatever it is written in, on a simulated kubelet.

Without COMMAND, the gopher plugin and the framework's own core are measured. With it, that plugin
is: it is started in a directory of its own and finds the plugin directory in DP_PLUGIN_DIR, and
the pod resources socket in DP_POD_RESOURCES_SOCKET. Where it wants them as arguments, write
{plugin_dir}; and {devices_dir} for a directory with a few files in it, made for each run."""

_EXAMPLES: Final = """\
examples:
  deviceplugin bench
  deviceplugin bench --quick --gopher
  deviceplugin bench --json figures.json -- my-device-plugin --plugin-dir {plugin_dir}
  deviceplugin bench --touch {devices_dir} -- my-device-plugin --devices-from {devices_dir}

Figures from a machine that does other work too are good for ratios only: the last line says how
noisy it was."""


def main(argv: Sequence[str]) -> int:
    """Run ``deviceplugin bench`` with the arguments ``argv`` and return its exit status.

    0 after measuring, 1 if something could not be measured, 2 for a wrong command line.
    """
    words, command = _split(argv)
    try:
        options = _parser().parse_args(words)
    except SystemExit as done:  # --help, or a usage error that argparse has told
        return int(done.code or 0)
    if command and (options.gopher or options.core):
        print("deviceplugin bench: give --gopher, --core or a COMMAND", file=sys.stderr)  # noqa: T201
        return _USAGE
    try:
        _run(options, command)
    except BenchError as error:
        print(f"deviceplugin bench: {error}", file=sys.stderr)  # noqa: T201
        return _FAILED
    except KeyboardInterrupt:
        return _FAILED
    return 0


def _run(options: argparse.Namespace, command: Sequence[str]) -> None:
    sections: list[Section] = []
    work = [_measure.calibrate(_CALIBRATIONS)]
    for measure in _chosen(options, command):
        sections.append(measure())
        work.append(_measure.calibrate(_CALIBRATIONS))
    calibration = replace(work[0], values=[value for each in work for value in each.values])
    print(_report.table(sections, calibration))  # noqa: T201
    if options.json is not None:
        text = json.dumps(_report.document(sections, calibration), indent=1)
        try:
            options.json.write_text(text + "\n", encoding="utf-8")
        except OSError as error:
            raise BenchError(f"{options.json}: {error.strerror}") from error


def _chosen(options: argparse.Namespace, command: Sequence[str]) -> Iterator[Callable[[], Section]]:
    plan = _plan_of(options)
    both = not (command or options.gopher or options.core)
    if command:
        subject = Subject(
            title=Path(command[0]).name, command=command, touch=options.touch,
            resources=options.resources, http_address=options.http_address,
        )  # fmt: skip
        yield lambda: _plan.measure(subject, plan, _say)
    if options.gopher or both:
        gopher = replace(_plan.gopher(), http_address=options.http_address)
        yield lambda: _plan.measure(gopher, plan, _say)
    if options.core or both:
        yield lambda: _plan.measure_many_devices(plan, _say)
        yield lambda: _plan.measure_many_resources(plan, _say)


def _plan_of(options: argparse.Namespace) -> Plan:
    plan = QUICK if options.quick else Plan()
    names = ("starts", "idle", "allocations", "changes", "restarts", "seed")
    given = {name: getattr(options, name) for name in names}
    return replace(plan, **{name: value for name, value in given.items() if value is not None})


def _split(argv: Sequence[str]) -> tuple[Sequence[str], Sequence[str]]:
    """Return what stands before and after ``--``."""
    if "--" not in argv:
        return argv, ()
    index = list(argv).index("--")
    return argv[:index], argv[index + 1 :]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="deviceplugin bench",
        usage="%(prog)s [options] [-- COMMAND...]",
        description=_DESCRIPTION,
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("--gopher", action="store_true", help="measure the gopher plugin")
    add("--core", action="store_true", help="measure the core: many devices, many resources")
    add("--quick", action="store_true", help="everything a few times only: does it work?")
    add("--json", type=Path, metavar="FILE", help="write all values to FILE")
    add("--starts", type=_count, metavar="N", help="times to start the plugin (10)")
    add("--idle", type=_seconds, metavar="SECONDS", help="time to leave the plugin alone (60)")
    add("--allocations", type=_count, metavar="N", help="Allocate calls of each kind (1000)")
    add("--changes", type=_count, metavar="N", help="changes of a device (30)")
    add("--restarts", type=_restarts, metavar="N", help="restarts of the kubelet (50)")
    add("--seed", type=int, metavar="N", help="decides when the kubelet restarts (0)")
    group = parser.add_argument_group("about COMMAND")
    group.add_argument(
        "--touch",
        default="",
        metavar="DIR",
        help="a file that comes or goes in DIR changes the plugin's devices: measure how soon",
    )
    group.add_argument(
        "--resources", type=_count, default=1, metavar="N", help="resources that it advertises (1)"
    )
    group.add_argument(
        "--http-address",
        default="off",
        metavar="ADDRESS",
        help="value of DP_HTTP_ADDRESS (off); 127.0.0.1:0 is any free port",
    )
    return parser


def _count(text: str) -> int:
    return _at_least(1, int(text))


def _restarts(text: str) -> int:
    return _at_least(2, int(text))


def _at_least(least: int, number: int) -> int:
    if number < least:
        raise argparse.ArgumentTypeError(f"must be {least} or more")
    return number


def _seconds(text: str) -> float:
    seconds = float(text)
    if seconds <= 0:
        raise argparse.ArgumentTypeError("must be above zero")
    return seconds


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)  # noqa: T201
