"""The command line of ``deviceplugin doctor``."""

import argparse
import os
import sys
from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Final

from deviceplugin import _settings
from deviceplugin._settings import Settings
from deviceplugin.doctor import _report
from deviceplugin.doctor._finding import Check
from deviceplugin.doctor._node import Node
from deviceplugin.doctor._runner import run
from deviceplugin.doctor.checks import CHECKS, PLUGINS
from deviceplugin.errors import ConfigError

_FAILED: Final = 1
_USAGE: Final = 2
_PROGRAM: Final = "deviceplugin doctor"
_LONGEST: Final = 60.0

_DESCRIPTION: Final = """\
Look at a node and say in plain words what is wrong for device plugins, what that means and what
to do. Run it where the plugin runs: on the node as root, or in the plugin's pod. It changes
nothing, needs no cluster access, and is done within seconds."""

_EXAMPLES: Final = """\
examples:
  deviceplugin doctor                            look at this machine
  deviceplugin doctor --plugin gpu               there should be GPUs here
  deviceplugin doctor --root /host --verbose     the node is mounted at /host; tell all
  kubectl exec POD -- python3 -m deviceplugin doctor --json

--plugin-dir, --registry-dir, --pod-resources-socket and --registration are the plugin's settings,
and are taken from the same DP_ environment variables.

Exit status: 0 if nothing has failed, 1 if something has, 2 if the command line is wrong."""

_SETTINGS: Final = ("plugin-dir", "registry-dir", "pod-resources-socket", "registration")


def main(argv: Sequence[str]) -> int:
    """Run ``deviceplugin doctor`` with the arguments ``argv`` and return its exit status.

    0 if nothing has failed, 1 if something has, 2 for a wrong command line.
    """
    try:
        options = _parser().parse_args(argv)
    except SystemExit as done:  # --help, or a usage error that argparse has told
        return int(done.code or 0)
    if options.list:
        print(_catalogue())  # noqa: T201
        return 0
    try:
        node, checks = _node(options), _chosen(options.only)
    except ConfigError as error:
        for line in str(error).splitlines():
            print(f"{_PROGRAM}: {line}", file=sys.stderr)  # noqa: T201
        return _USAGE
    results = list(run(node, checks))
    if options.json:
        sys.stdout.write(_report.to_json(node, results))
    else:
        colour = sys.stdout.isatty() and "NO_COLOR" not in os.environ
        sys.stdout.write(_report.text(results, verbose=options.verbose, colour=colour))
    return _FAILED if _report.failed(results) else 0


def _node(options: argparse.Namespace) -> Node:
    given = {name: value for name, value in vars(options).items() if name in _SETTINGS and value}
    if not options.root.is_dir():
        raise ConfigError(f"--root {str(options.root)!r} is not a directory")
    if not 0 < options.timeout <= _LONGEST:
        raise ConfigError(f"--timeout {options.timeout:g} is not above 0 and at most {_LONGEST:g}")
    return Node(
        root=options.root,
        settings=_settings.load(Settings, flags=given),
        plugins=frozenset(options.plugin),
        config=options.config,
        timeout=options.timeout,
    )


def _chosen(wanted: Sequence[str]) -> Sequence[Check]:
    known = [check.name for check in CHECKS]
    for name in wanted:
        if name not in known:
            near = get_close_matches(name, known, 1)
            hint = f"did you mean {near[0]}?" if near else "--list shows all"
            raise ConfigError(f"no check {name!r}: {hint}")
    return [check for check in CHECKS if not wanted or check.name in wanted]


def _catalogue() -> str:
    width = max(len(check.name) for check in CHECKS)
    return "\n".join(f"{check.name:{width}}  {check.title}" for check in CHECKS)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=_PROGRAM,
        description=_DESCRIPTION,
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("--verbose", "-v", action="store_true", help="show what is ok, too")
    add("--json", action="store_true", help="print JSON, with what is ok")
    add(
        "--plugin",
        action="append",
        default=[],
        choices=PLUGINS,
        help="the devices of this plugin should be here; may be given several times",
    )
    add("--root", type=Path, default=Path("/"), metavar="DIR", help="where the node's / is (/)")
    add("--config", type=Path, metavar="FILE", help="the generic plugin's configuration file")
    add("--only", action="append", default=[], metavar="CHECK", help="make this check only")
    add("--list", action="store_true", help="list all checks, and exit")
    add(
        "--timeout",
        type=float,
        default=2.0,
        metavar="SECONDS",
        help="how long whoever listens on a socket has to answer (2)",
    )
    for name in _SETTINGS:
        add(f"--{name}", dest=name, metavar="VALUE", help="as of the plugin")
    return parser
