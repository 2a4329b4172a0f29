"""The command line of ``deviceplugin doctor``, and findings as text for people and as JSON."""

import argparse
import os
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from deviceplugin._app.exit_status import FAILED
from deviceplugin._app.text_table import aligned
from deviceplugin._config import loading
from deviceplugin.checks import Node, Verdict
from deviceplugin.errors import ConfigError
from deviceplugin.tools import _command_line
from deviceplugin.tools._command_line import Line, Tone, add_repeated, add_settings, settings_of
from deviceplugin.tools.doctor._check import AnyCheck, Result, plugin_checks, run
from deviceplugin.tools.doctor.checks import all_checks

FORMAT: Final = 1
"""Version of the JSON. It is raised when a field changes its meaning or disappears."""

_WIDTH: Final = max(map(len, Verdict))
SHOWN: Final[Mapping[Verdict, tuple[Tone, str]]] = {
    Verdict.FAILURE: (Tone.BAD, "failures"),
    Verdict.WARNING: (Tone.DOUBTFUL, "warnings"),
    Verdict.UNKNOWN: (Tone.QUIET, "unknown"),
    Verdict.OK: (Tone.GOOD, "ok"),
}
"""The tone of each verdict, and its plural."""
_DESCRIPTION: Final = """\
Check a node and report what is wrong for device plugins, what that means and what to do. Run it
where the plugin runs: on the node as root, or in the plugin's pod. It changes nothing, and takes
seconds. It asks the API server only for a plugin that offers its devices through DRA."""

_EXAMPLES: Final = """\
examples:
  deviceplugin doctor                            check this machine
  deviceplugin doctor --plugin gpu               there should be GPUs here
  deviceplugin doctor --root /host --verbose     the node is mounted at /host; show all findings
  kubectl exec POD -- python3 -m deviceplugin doctor --json

--plugin-dir, --registry-dir, --pod-resources-socket, --registration, --protocol, --driver-dir,
--cdi-dir and --api-server are the plugin's settings, with the same DP_ environment variables.

Exit status: 0 if there is no failure, 1 if there is one, 2 if the command line is wrong."""

_SETTINGS: Final = (
    "plugin-dir",
    "registry-dir",
    "pod-resources-socket",
    "registration",
    "protocol",
    "driver-dir",
    "cdi-dir",
    "api-server",
)


def text(results: Sequence[Result], *, verbose: bool, colour: bool) -> str:
    """Return ``results`` as lines; findings that are ok only if ``verbose``."""
    shown = [r for r in results if verbose or r.finding.verdict is not Verdict.OK]
    width = max((len(result.check) for result in shown), default=0)
    lines = [_line(result).show((_WIDTH, width), colour=colour) for result in shown]
    return "\n".join([*lines, *([""] if lines else []), _summary(results), ""])


def _line(result: Result) -> Line:
    finding = result.finding
    notes = [("means", finding.means), ("do", finding.do)]
    tone, text = SHOWN[finding.verdict][0], f"{finding.looked_at}: {finding.found}"
    return Line(finding.verdict, tone, result.check, text, notes)


def _summary(results: Iterable[Result]) -> str:
    counts = Counter(result.finding.verdict for result in results)
    parts = [f"{counts[v]} {v if counts[v] == 1 else SHOWN[v][1]}" for v in Verdict]
    return f"{', '.join(parts)}; nothing was changed"


def failed(results: Iterable[Result]) -> bool:
    return any(result.finding.verdict is Verdict.FAILURE for result in results)


def document(node: Node, results: Sequence[Result]) -> Mapping[str, Any]:
    counts = Counter(result.finding.verdict for result in results)
    parts = {
        "root": str(node.root),
        "user": os.geteuid(),
        "failed": failed(results),
        "counts": {verdict.value: counts[verdict] for verdict in Verdict},
        "findings": [{"check": one.check, **asdict(one.finding)} for one in results],
    }
    return _command_line.document(FORMAT, parts)


def main(argv: Sequence[str]) -> int:
    return _command_line.run(_parser(), argv, _examine)


def _examine(options: argparse.Namespace) -> int:
    if options.list:
        print(_catalogue())  # noqa: T201
        return 0
    node, checks = _node(options), _chosen(options.only)
    results = list(run(node, checks))
    if options.json:
        sys.stdout.write(_command_line.to_json(document(node, results)))
    else:
        colour = _command_line.has_colour()
        sys.stdout.write(text(results, verbose=options.verbose, colour=colour))
    return FAILED if failed(results) else 0


def _node(options: argparse.Namespace) -> Node:
    if not options.root.is_dir():
        raise ConfigError(f"--root {str(options.root)!r} is not a directory")
    return Node(
        root=options.root,
        settings=settings_of(options, _SETTINGS),
        plugins=frozenset(options.plugin),
        config=options.config or _configured(options.root),
        timeout=options.timeout,
    )


def _configured(root: Path) -> Path | None:
    """Return the file that the environment names, as in a plugin's pod."""
    file = loading.config_file()
    return file if file is not None and root == Path("/") and file.exists() else None


def _chosen(wanted: Sequence[str]) -> Sequence[AnyCheck]:
    checks = all_checks()
    _command_line.check_names("check", wanted, [check.name for check in checks])
    return [check for check in checks if not wanted or check.name in wanted]


def _catalogue() -> str:
    return "\n".join(aligned([(check.name, check.title) for check in all_checks()]))


def _parser() -> argparse.ArgumentParser:
    parser = _command_line.parser("doctor", _DESCRIPTION, _EXAMPLES)
    add = parser.add_argument
    add("--verbose", "-v", action="store_true", help="show findings that are ok, too")
    add("--json", action="store_true", help="print all findings as JSON")
    known = [check.name for check in plugin_checks()]
    words = "the devices of this installed plugin should be here; can be repeated"
    add("--plugin", action="append", default=[], choices=known, help=words)
    add("--root", type=Path, default=Path("/"), metavar="DIR", help="the root of the node (/)")
    add("--config", type=Path, metavar="FILE", help="the configuration file (DP_CONFIG)")
    add_repeated(parser, "--only", "CHECK", "run this check only")
    add("--list", action="store_true", help="list all checks, and exit")
    _command_line.add_timeout(parser, 2, "for an answer on a socket")
    add_settings(parser, _SETTINGS)
    return parser
