"""The command line of ``deviceplugin doctor``, and findings as text for people and as JSON."""

import argparse
import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, Final

from deviceplugin._app.exit_status import FAILED
from deviceplugin._app.text_table import aligned
from deviceplugin._config import loading
from deviceplugin._config.documents.faults import nearest
from deviceplugin._config.kinds.scalars import NAME_PATTERN, matches
from deviceplugin._platform.api_errors import ApiServerError
from deviceplugin.checks import Node, Verdict, ok
from deviceplugin.errors import ConfigError
from deviceplugin.tools import _command_line
from deviceplugin.tools._command_line import Line, Tone, add_repeated, add_settings, settings_of
from deviceplugin.tools.agent._sections import names as installed_plugins
from deviceplugin.tools.doctor._check import AnyCheck, Result, plugin_checks, run
from deviceplugin.tools.doctor.checks import all_checks

FORMAT: Final = 1
"""Version of the JSON. It is raised when a field changes its meaning or disappears."""

POD_PATTERN: Final = r"^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?$"
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
seconds. It asks the API server only for a plugin that offers its devices through DRA, and with
--pod: then it examines a pod from anywhere, as the account that kubectl has."""

_EXAMPLES: Final = """\
examples:
  deviceplugin doctor                            check this machine
  deviceplugin doctor --plugin gpu               there should be GPUs here
  deviceplugin doctor --root /host --verbose     the node is mounted at /host; show all findings
  deviceplugin doctor --pod default/train-0      why this pod waits, or was rejected
  kubectl exec POD -- python3 -m deviceplugin doctor --output json

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
    lines = [line(result, width, colour=colour) for result in shown]
    return "\n".join([*lines, *([""] if lines else []), _summary(results), ""])


def line(result: Result, width: int, *, colour: bool) -> str:
    """Return one of ``results``, with its notes below it; ``width`` is that of the checks."""
    finding = result.finding
    notes = [("means", finding.means), ("do", finding.do)]
    tone, text = SHOWN[finding.verdict][0], f"{finding.looked_at}: {finding.found}"
    shown = Line(finding.verdict, tone, result.check, text, notes)
    return shown.show((_WIDTH, width), colour=colour)


def _summary(results: Iterable[Result]) -> str:
    counts = Counter(result.finding.verdict for result in results)
    parts = [f"{counts[v]} {v if counts[v] == 1 else SHOWN[v][1]}" for v in Verdict]
    return f"{', '.join(parts)}; nothing was changed"


def failed(results: Iterable[Result]) -> bool:
    return any(result.finding.verdict is Verdict.FAILURE for result in results)


def document(examined: Mapping[str, Any], results: Sequence[Result]) -> Mapping[str, Any]:
    counts = Counter(result.finding.verdict for result in results)
    parts = {
        **examined,
        "failed": failed(results),
        "counts": {verdict.value: counts[verdict] for verdict in Verdict},
        "findings": [{"check": one.check, **asdict(one.finding)} for one in results],
    }
    return _command_line.document(FORMAT, parts)


def main(argv: Sequence[str]) -> int:
    return _command_line.run(_parser(), argv, _examine, (ApiServerError,))


def _examine(options: argparse.Namespace) -> int:
    if options.list:
        print(_catalogue())  # noqa: T201
        return 0
    examined, results = _of_pod(options) if options.pod else _of_node(options)
    verbose, colour = bool(options.verbose or options.pod), _command_line.has_colour()
    table = partial(text, results, verbose=verbose, colour=colour)
    _command_line.write(options, table, partial(document, examined, results))
    return FAILED if failed(results) else 0


def _of_node(options: argparse.Namespace) -> tuple[Mapping[str, Any], Sequence[Result]]:
    node, checks = _node(options), _chosen(options.only)
    silent = sorted(node.plugins - {check.name for check in all_checks()})
    found = "has no check of its own; those of the kubelet and of what it offers hold for it"
    results = [*run(node, checks), *(Result("plugin", ok(name, found)) for name in silent)]
    return {"root": str(node.root), "user": os.geteuid()}, results


def _of_pod(options: argparse.Namespace) -> tuple[Mapping[str, Any], Sequence[Result]]:
    namespace, slash, name = options.pod.partition("/")
    if not (slash and matches(namespace, NAME_PATTERN) and matches(name, POD_PATTERN)):
        raise ConfigError(f"--pod {options.pod!r}: is not NAMESPACE/POD, such as default/train-0")
    of_node = {"--only": options.only, "--plugin": options.plugin, "--config": options.config}
    if given := [flag for flag, value in of_node.items() if value]:
        raise ConfigError(f"{given[0]}: is for a node; --pod examines none")
    try:
        from deviceplugin.tools.doctor.pods import api_server, look  # for --pod only
    except ModuleNotFoundError as error:
        raise ConfigError("--pod needs urllib3: pip install urllib3") from error
    api = api_server(settings_of(options, _SETTINGS).api_server)
    return {"pod": options.pod}, [Result("pod", one) for one in look(api, namespace, name)]


def _node(options: argparse.Namespace) -> Node:
    if not options.root.is_dir():
        raise ConfigError(f"--root {str(options.root)!r} is not a directory")
    _check_plugins(options.plugin)
    return Node(
        root=options.root,
        settings=settings_of(options, _SETTINGS),
        plugins=frozenset(options.plugin),
        config=options.config or _configured(options.root),
        timeout=options.timeout,
    )


def _check_plugins(wanted: Sequence[str]) -> None:
    known = sorted({check.name for check in plugin_checks()} | {*installed_plugins()})
    for name in wanted:
        if name not in known:
            near = nearest(name, known)
            advice = f"did you mean {near}?" if near else f"there are {', '.join(known) or 'none'}"
            raise ConfigError(f"--plugin {name}: is not installed here: {advice}")


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
    _command_line.add_output(parser)
    words = "the devices of this installed plugin should be here; can be repeated"
    add_repeated(parser, "--plugin", "NAME", words)
    words = "examine a pod by the API server, and no node"
    add("--pod", default="", metavar="NAMESPACE/POD", help=words)
    add("--root", type=Path, default=Path("/"), metavar="DIR", help="the root of the node (/)")
    add("--config", type=Path, metavar="FILE", help="the configuration file (DP_CONFIG)")
    add_repeated(parser, "--only", "CHECK", "run this check only")
    add("--list", action="store_true", help="list all checks, and exit")
    _command_line.add_timeout(parser, 2, "for an answer on a socket")
    add_settings(parser, _SETTINGS)
    return parser
