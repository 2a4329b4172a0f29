"""The command line of ``deviceplugin bench``."""

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from deviceplugin.errors import ConfigError
from deviceplugin.tools import _command_line
from deviceplugin_testing.tools.bench import _figures, _measure, _plan, _versus
from deviceplugin_testing.tools.bench._figures import BenchError, Section
from deviceplugin_testing.tools.bench._plan import QUICK, Plan
from deviceplugin_testing.tools.bench._subject import KINDS, BenchSubject

_CALIBRATIONS: Final = 50
_VERSUS: Final = "--versus"

_DESCRIPTION: Final = """\
Measure a device plugin in any language from outside, on a simulated kubelet.

Without COMMAND, the gopher plugin and the framework's own core are measured; with COMMAND, that
plugin. It finds the plugin directory in the environment variable DP_PLUGIN_DIR, the pod resources
socket in DP_POD_RESOURCES_SOCKET, and a file for what it remembers in DP_STATE_FILE. If it needs
them as arguments, write {plugin_dir}, {pod_resources_socket} or {state_file}. {devices_dir} is a
directory with a few files in it, new for each run."""

_EXAMPLES: Final = """\
examples:
  deviceplugin bench
  deviceplugin bench --quick --gopher
  deviceplugin bench --output json -- my-device-plugin --plugin-dir {plugin_dir} > figures.json
  deviceplugin bench --bare
  deviceplugin bench --soak 30m
  deviceplugin bench --claims -- my-device-plugin --protocol dra
  deviceplugin bench -- my-device-plugin --versus its-peer --versus another-peer --its-flag
  deviceplugin bench --compare before.json after.json
  deviceplugin bench --touch {devices_dir} -- my-device-plugin --devices-from {devices_dir}

On a machine that does other work too, only ratios are reliable. The last line says how noisy it
was.

Exit status: 0 if all was measured, 1 if something was not, 2 if the command line is wrong."""


def main(argv: Sequence[str]) -> int:
    """Run ``deviceplugin bench`` with the arguments ``argv`` and return its exit status.

    0 after measuring, 1 if something could not be measured, 2 for a wrong command line.
    """
    words, commands = _split(argv)
    return _command_line.run(
        _parser(), words, lambda options: _run(options, commands), (BenchError,), starts=True
    )


def _run(options: argparse.Namespace, commands: Sequence[Sequence[str]]) -> int:
    if problem := _problem(options, commands):
        raise ConfigError(problem)
    if options.compare:
        old, new = options.compare
        _versus.compare(old, new, _print)
    else:
        _measure_all(options, commands)
    return 0


def _problem(options: argparse.Namespace, commands: Sequence[Sequence[str]]) -> str:
    """Return what is wrong with the command line as a whole, or an empty string."""
    other_kind = options.soak or options.bare
    wrong = {
        f"give a COMMAND after -- and after {_VERSUS}": any(not command for command in commands),
        "give --gopher, --core or a COMMAND": commands and (options.gopher or options.core),
        "--claims needs one COMMAND, and is for itself": (
            options.claims and (len(commands) != 1 or other_kind)
        ),
        "--soak and --bare are for the gopher plugin or a COMMAND": options.core and other_kind,
        f"--soak and --bare take one COMMAND, not {_VERSUS}": len(commands) > 1 and other_kind,
    }
    return next((problem for problem, is_so in wrong.items() if is_so), "")


def _measure_all(options: argparse.Namespace, commands: Sequence[Sequence[str]]) -> None:
    sections: list[Section] = []
    work = [_measure.calibrate(_CALIBRATIONS)]
    for section in _sections(options, [_subject(options, command) for command in commands]):
        sections.append(section)
        work.append(_measure.calibrate(_CALIBRATIONS))
    calibration = replace(work[0], values=[value for each in work for value in each.values])
    with _command_line.aside(options):
        _print(_figures.table(sections, calibration))
        first, *others = sections if options.bare or len(commands) > 1 else sections[:1]
        for other in others:
            _print(_versus.table(first.title, other.title, _versus.ratios(first, other)) + "\n")
    if _command_line.is_json(options):
        sys.stdout.write(_command_line.to_json(_figures.document(sections, calibration)))


def _sections(options: argparse.Namespace, subjects: Sequence[BenchSubject]) -> Iterator[Section]:
    plan = _plan_of(options)
    subject = subjects[0] if subjects else _gopher(options)
    if options.claims:
        from deviceplugin_testing.tools.bench import _claims  # its cluster needs an extra

        yield _claims.measure(subject, plan.allocations, plan.seed, _say)
    elif options.soak is not None:
        yield _plan.soak(subject, options.soak, plan.seed, _say)
    elif len(subjects) > 1:
        yield from _versus.alternate(subjects, plan, _say)
    elif options.bare:
        bare = replace(_plan.bare(), http_address=options.http_address)
        yield from _versus.alternate((bare, subject), plan, _say)
    else:
        if subjects or options.gopher or not options.core:
            yield _plan.measure(subject, plan, _say)
        if options.core or not (subjects or options.gopher):
            yield from _core(plan)


def _core(plan: Plan) -> Iterator[Section]:
    for kind, counts, measure in (
        ("devices", plan.core_devices, _plan.measure_many_devices),
        ("resources", plan.core_resources, _plan.measure_many_resources),
    ):
        sections = {}
        for count in counts:
            sections[count] = measure(count, plan, _say)
            yield sections[count]
        yield from _plan.growth(kind, sections)


def _gopher(options: argparse.Namespace) -> BenchSubject:
    return replace(_plan.gopher(), http_address=options.http_address)


def _subject(options: argparse.Namespace, command: Sequence[str]) -> BenchSubject:
    return BenchSubject(
        title=Path(command[0]).name, command=command, touch=options.touch, entries=options.entries,
        resources=options.resources, http_address=options.http_address,
    )  # fmt: skip


def _plan_of(options: argparse.Namespace) -> Plan:
    plan = QUICK if options.quick else Plan()
    names = ("starts", "idle", "allocations", "changes", "restarts", "seed")
    given = {name: getattr(options, name) for name in names}
    return replace(plan, **{name: value for name, value in given.items() if value is not None})


def _split(argv: Sequence[str]) -> tuple[Sequence[str], Sequence[Sequence[str]]]:
    """Return the arguments before ``--``, and the commands after it."""
    words, rest = _command_line.split(argv)
    if rest is None:
        return words, ()
    commands: list[list[str]] = [[]]
    for word in rest:
        if word == _VERSUS:
            commands.append([])
        else:
            commands[-1].append(word)
    return words, commands


def _parser() -> argparse.ArgumentParser:
    usage = f"%(prog)s [options] [-- COMMAND... [{_VERSUS} COMMAND...]]"
    parser = _command_line.parser("bench", _DESCRIPTION, _EXAMPLES, usage)
    add = parser.add_argument
    add("--gopher", action="store_true", help="measure the gopher plugin")
    add("--claims", action="store_true", help="measure claims of COMMAND, which is a DRA driver")
    add("--core", action="store_true", help="measure the core: many devices, many resources")
    add("--quick", action="store_true", help="measure a few times only, to see that it works")
    add("--bare", action="store_true", help="compare with a minimal plugin")
    words = "cause random trouble for so long, such as 30m, and observe the memory"
    _command_line.add_seconds(parser, "--soak", "", words, "1ms")
    add(
        "--compare",
        nargs=2,
        type=Path,
        metavar=("OLD", "NEW"),
        help="measure nothing: compare two files that --output json has written",
    )
    _command_line.add_output(parser)
    add("--starts", type=_count, metavar="N", help="times to start the plugin (10)")
    words = "time to leave the plugin alone (60s)"
    _command_line.add_seconds(parser, "--idle", "", words, "1ms")
    add("--allocations", type=_count, metavar="N", help="Allocate calls of each kind (1000)")
    add("--changes", type=_count, metavar="N", help="changes of a device (30)")
    add("--restarts", type=_restarts, metavar="N", help="restarts of the kubelet (50)")
    add("--seed", type=int, metavar="N", help="seed of the moments of restarts (0)")
    group = parser.add_argument_group("about COMMAND")
    group.add_argument(
        "--touch",
        default="",
        metavar="DIR",
        help="adding or removing an entry of DIR changes the plugin's devices: measure how soon",
    )
    group.add_argument(
        "--entries",
        choices=KINDS,
        default="file",
        help="what the entries of DIR and {devices_dir} are (file); node needs root, and link is a "
        "symbolic link to /dev/null",
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


def _print(text: str) -> None:
    print(text, flush=True)  # noqa: T201


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)  # noqa: T201
