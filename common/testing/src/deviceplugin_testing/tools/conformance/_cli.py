"""The command line of ``deviceplugin conformance``."""

import argparse
import random
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final

from deviceplugin._app.exit_status import FAILED
from deviceplugin.errors import ConfigError
from deviceplugin.tools import _command_line
from deviceplugin_testing.conformance._check import Check, CheckGroup, Result
from deviceplugin_testing.conformance._lanes import InOrder, Progress, SideBySide, run
from deviceplugin_testing.conformance._subject import QUICK, Limits, Subject
from deviceplugin_testing.conformance._trial import Trial
from deviceplugin_testing.conformance.checks import GROUPS
from deviceplugin_testing.conformance.dra import DRA_GROUPS, DraTrial
from deviceplugin_testing.simulator import COMPARED, NEWEST, RELEASES
from deviceplugin_testing.simulator._host.release import Release
from deviceplugin_testing.tools.conformance import _report

_JOBS: Final = 4
_DESCRIPTION: Final = """\
Check a device plugin in any language against what a kubelet expects of it.

The plugin is started many times, on simulated kubelets. They do what happens on a node: they
allocate, restart, close connections, delete sockets and stop. No cluster, root or hardware is
needed.

A plugin finds the plugin directory in DP_PLUGIN_DIR, the pod resources socket in
DP_POD_RESOURCES_SOCKET, plugins_registry in DP_REGISTRY_DIR, a free address for HTTP in
DP_HTTP_ADDRESS and a file for what it remembers in DP_STATE_FILE. If it needs them as arguments,
write {plugin_dir}, {pod_resources_socket}, {registry_dir}, {http_address}, {state_file} or
{kubelet_dir}. {devices_dir} is a directory with a few files in it, new for each start.

With --dra it checks a driver of dynamic resource allocation, on a simulated cluster. The driver
finds plugins_registry in DP_REGISTRY_DIR, its own directory in DP_DRIVER_DIR, the directory of CDI
specifications in DP_CDI_DIR, the API server in KUBECONFIG and DP_API_SERVER, and the name of the
node in NODE_NAME, or by {registry_dir}, {driver_dir}, {cdi_dir}, {kubeconfig}, {api_server} and
{node_name}."""

_EXAMPLES: Final = """\
examples:
  deviceplugin conformance -- my-device-plugin --plugin-dir {plugin_dir}
  deviceplugin conformance --trigger-change 'touch {devices_dir}/new' \\
    -- gopher-device-plugin --directory {devices_dir}
  deviceplugin conformance --kubelet-dir /var/lib/kubelet -- plugin-with-a-fixed-path
  deviceplugin conformance --dra -- my-dra-driver --kubeconfig {kubeconfig}
  deviceplugin conformance --quick --junit report.xml -- my-device-plugin
  deviceplugin conformance --output json -- my-device-plugin > report.json

Exit status: 0 if no check failed, 1 if one did, or if the plugin did not start or listed no healthy
device, 2 if the command line is wrong or the command cannot be run."""


def main(argv: Sequence[str]) -> int:
    """Run ``deviceplugin conformance`` with the arguments ``argv`` and return its exit status.

    0 if no check failed, 1 if one did or nothing could be checked, 2 for a wrong command line.
    """
    words, command = _command_line.split(argv)
    act = partial(_run, command=command or ())
    return _command_line.run(_parser(), words, act, starts=True)


def _run(options: argparse.Namespace, command: Sequence[str]) -> int:
    groups = DRA_GROUPS if options.dra else GROUPS
    if options.list:
        print(_report.catalogue([check for group in groups for check in group.checks]))  # noqa: T201
        return 0
    if not command:
        raise ConfigError("give the plugin's command, after --")
    _check_options(options)
    checks = _chosen(options.only, groups)
    subject = Subject(
        command=command,
        resource=options.driver if options.dra else options.resource,
        trigger=options.trigger_change,
        kubelet_dir=options.kubelet_dir,
        kubelet_version=options.kubelet_version,
        needs_devices=not options.allow_no_devices,
    )
    subject.check()
    seed = random.SystemRandom().randrange(2**32) if options.seed is None else options.seed
    limits = QUICK if options.quick else Limits()
    if options.timeout is not None:
        limits = replace(limits, within=options.timeout, start=options.timeout)
    jobs = 1 if options.kubelet_dir else options.jobs
    alone = not options.each_resource
    with _command_line.aside(options):
        report = _try(subject, limits, seed, checks, None if options.dra else jobs, alone=alone)
        passed = report.passed
        for name in () if alone else sorted(report.others):
            print()  # noqa: T201
            other = replace(subject, resource=name)
            passed &= _try(other, limits, seed, checks, jobs, alone=False).passed
    if options.junit is not None:
        _write(options.junit, _report.to_junit(report))
    if _command_line.is_json(options):
        sys.stdout.write(_report.to_json(report))
    return 0 if passed else FAILED


def _check_options(options: argparse.Namespace) -> None:
    """Raise ``ConfigError`` for an option that would have no effect."""
    of_plugins = {
        "--resource": options.resource,
        "--each-resource": options.each_resource,
        "--trigger-change": options.trigger_change,
    }
    for name, value in of_plugins.items() if options.dra else ():
        if value:
            raise ConfigError(f"{name} is for device plugins, not for --dra")
    others = {
        "--resource": options.resource,
        "--output json": _command_line.is_json(options),
        "--junit": options.junit,
    }
    for name, value in others.items() if options.each_resource else ():
        if value:
            raise ConfigError(f"{name} is for one resource, not for --each-resource")
    if options.driver and not options.dra:
        raise ConfigError("--driver needs --dra")
    if options.dra and not Release.of(options.kubelet_version).has_dra_gate:
        raise ConfigError(f"--dra: Kubernetes {options.kubelet_version} has no DRA to check")


def _try(
    subject: Subject,
    limits: Limits,
    seed: int,
    checks: Sequence[Check],
    jobs: int | None,
    *,
    alone: bool = True,
) -> _report.Run:
    """Run ``checks`` with up to ``jobs`` plugins at a time, or on one driver without ``jobs``.

    If the resource is not ``alone``, others are checked too, and not reported as unchecked.
    """
    colour = _command_line.has_colour()
    width = max(len(check.id) for check in checks)

    def say(result: Result) -> None:
        progress.print(_report.line(result, width=width, colour=colour))

    begin, order = time.monotonic(), InOrder(checks, say)
    found: dict[str, Any]
    with Progress(order, sys.stderr) as progress:
        if jobs is None:
            with DraTrial(subject, limits, seed) as driver:
                run(driver, order.checks, order.ends, order.begins)
            found = {"resource": driver.driver, "problem": driver.hopeless}
        else:
            with Trial(subject, limits, seed) as trial:
                lanes = SideBySide(trial, order, jobs)
                lanes.run(order.checks)
            found = {"resource": trial.resource, "problem": trial.hopeless}
            found |= {"others": trial.others, "only_one": lanes.only_one}
    report = _report.Run(
        command=subject.command,
        seed=seed,
        seconds=time.monotonic() - begin,
        results=order.results,
        kubelet_version=subject.kubelet_version,
        needs_devices=subject.needs_devices,
        **found,
    )
    shown = report if alone else replace(report, others=frozenset())
    print(f"\n{_report.summary(shown)}")  # noqa: T201
    return report


def _chosen(wanted: Sequence[str], groups: Sequence[CheckGroup] = GROUPS) -> Sequence[Check]:
    """Return the checks of the groups and ids in ``wanted``, or all checks if it is empty."""
    checks = [check for group in groups for check in group.checks]
    known = {group.name for group in groups} | {check.id for check in checks}
    _command_line.check_names("check or group", wanted, known)
    return [
        check
        for check in checks
        if not wanted or {check.id, check.id.partition(".")[0]} & set(wanted)
    ]


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from error


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number above zero")
    return int(text)


def _parser() -> argparse.ArgumentParser:
    usage = "%(prog)s [options] -- COMMAND..."
    parser = _command_line.parser("conformance", _DESCRIPTION, _EXAMPLES, usage)
    add = parser.add_argument
    add("--dra", action="store_true", help="check a DRA driver instead of a device plugin")
    add("--driver", default="", metavar="NAME", help="check this DRA driver (the first by name)")
    add("--resource", default="", metavar="NAME", help="check this resource of the plugin")
    add(
        "--each-resource",
        action="store_true",
        help="check all resources of the plugin, one after the other",
    )
    add(
        "--kubelet-dir",
        type=Path,
        metavar="DIR",
        help="run the kubelet in DIR, in which no real kubelet may run (a temporary one)",
    )
    add(
        "--kubelet-version",
        choices=RELEASES,
        default=COMPARED,
        metavar="RELEASE",
        help=f"check it on the kubelet of this release, {RELEASES[0]} to {NEWEST} ({COMPARED})",
    )
    add(
        "--trigger-change",
        default="",
        metavar="CMD",
        help="shell command that changes the plugin's devices; it can have the same {names}",
    )
    add("--junit", type=Path, metavar="FILE", help="write JUnit XML to FILE")
    _command_line.add_output(parser)
    words = "pass although no healthy device is listed, and nothing could be allocated"
    add("--allow-no-devices", action="store_true", help=words)
    add("--list", action="store_true", help="list all checks, and exit")
    add(
        "--only",
        action="append",
        default=[],
        metavar="GROUP_OR_CHECK",
        help="run this group or check only; can be repeated",
    )
    add(
        "--jobs",
        type=_count,
        default=_JOBS,
        metavar="N",
        help=f"run up to N processes of the plugin at a time ({_JOBS}); 1 if they would conflict",
    )
    add("--seed", type=int, metavar="N", help="seed of every random choice (a new one)")
    add("--quick", action="store_true", help="shorter observations, fewer restarts")
    words = "how long the plugin may take to start, to register again and to list a change (10s)"
    _command_line.add_seconds(parser, "--timeout", "", words, "1ms")
    return parser
