"""The command line of ``deviceplugin migrate``, and what installed plugins know of their peers."""

import argparse
import posixpath
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Final, cast

from deviceplugin._app.exit_status import complain
from deviceplugin._config.documents.faults import bounded
from deviceplugin.apiserver import ApiServerError
from deviceplugin.errors import ConfigError
from deviceplugin.kit.migration import Migration, Path, Workload
from deviceplugin.tools import _command_line
from deviceplugin_cli.fleet._progress import Progress
from deviceplugin_cli.fleet._question import Reader
from deviceplugin_cli.kubeconfig import add_cluster, cluster_of
from deviceplugin_cli.migrate._accounting import drop_others, settle
from deviceplugin_cli.migrate._cluster import read_cluster
from deviceplugin_cli.migrate._compare import Made, compare
from deviceplugin_cli.migrate._containers import Found
from deviceplugin_cli.migrate._documents import Input, read_text
from deviceplugin_cli.migrate._forms import outermost, settle_releases, workloads
from deviceplugin_cli.migrate._sources import read_sources
from deviceplugin_cli.migrate.output import _result, _verify

GROUP: Final = "deviceplugin.migrate"
"""The group of entry points. The name of an entry point is that of the plugin."""

Migrate = Callable[[Workload], Migration | None]
_DESCRIPTION: Final = """\
Read the manifest or the Helm values of another device plugin, and print what deploys ours in its
place, with our configuration in it. Comments at its top have the order of the migration, as
commands, in which no node is without its devices; and all that is different. Nothing is changed.

MANIFEST is a YAML file with a DaemonSet and the ConfigMaps that it names, or the values of a Helm
chart, or a folder of such files; - is standard input. With --from-cluster the cluster of the
kubeconfig is asked instead, and all device plugins that it has are listed. Helm templates have to
be rendered first: helm template ... | deviceplugin migrate -

Two more commands: "deviceplugin migrate verify" compares the devices of the cluster before and
after, and "deviceplugin migrate back" prints the way back. A file of such a name is ./verify."""
_EXAMPLES: Final = """\
examples:
  deviceplugin migrate daemonset.yaml > kustomization.yaml && kubectl kustomize .
  deviceplugin migrate daemonset.yaml --config conf.yaml    its configuration is in another file
  deviceplugin migrate clusters/production/                 all YAML and JSON files of a folder
  deviceplugin migrate --from-cluster --name NAME           a DaemonSet of the cluster
  deviceplugin migrate values.yaml --output helmrelease     as Flux has it
  deviceplugin migrate all.yaml --directory ours            several DaemonSets, a folder for each

What our plugin would refuse is not printed. Exit status: 0 if something was printed, 1 if the
cluster does not answer, 2 if there is nothing to migrate or something is wrong, 3 if it was printed
and nobody could judge it, because our plugin is not installed here."""
_BACK: Final = """\
Print the way back from ours to the other plugin, as commands, for the MANIFEST and the options that
"deviceplugin migrate" was given. Nothing is changed."""
_BACK_EXAMPLES: Final = """\
examples:
  deviceplugin migrate back daemonset.yaml
  deviceplugin migrate back values.yaml --output helmrelease

To migrate a file that is called back, write ./back. Exit status: 0, 1 or 2 as for migrate."""
_CLIENT: Final = "deviceplugin-migrate"
_UNJUDGED: Final = 3
_MOST: Final = 10
"""Workloads that a message names."""


def plugins() -> list[EntryPoint]:
    return sorted(entry_points(group=GROUP), key=lambda entry: entry.name)


def migrations(workload: Workload) -> Iterator[Migration]:
    """Yield what each plugin makes of a workload that it knows."""
    for migrate in _loaded():
        if (found := migrate(workload)) is not None:
            yield found


def _loaded() -> list[Migrate]:
    found = []
    for entry in plugins():
        try:
            found.append(cast("Migrate", entry.load()))
        except ImportError as error:
            raise ConfigError(f"the plugin {entry.name} cannot be imported: {error}") from error
    return found


def main(argv: Sequence[str]) -> int:
    """Migrate, or run the sub-command that comes first: files of these names need ``./``."""
    command, rest = (argv[0], argv[1:]) if argv else ("", argv)
    if command == "verify":
        return _verify.main(rest)
    words = ("migrate back", _BACK, _BACK_EXAMPLES), _back
    if command != "back":
        words, rest = (("migrate", _DESCRIPTION, _EXAMPLES), _migrate), argv
    return _command_line.run(_parser(*words[0]), rest, words[1], (ApiServerError,))


def _made(options: argparse.Namespace) -> tuple[str, list[Made]]:
    """Return what the input is called, and what becomes of each peer; raise ``ConfigError``."""
    path, source = _input(options)
    configuration = None if options.config is None else read_text(options.config)
    made = collect(path, source, configuration, options.name)
    settle(source, made, partial=options.partial)
    return path, made


def collect(path: str, source: Input, configuration: str | None, name: str | None) -> list[Made]:
    """Return the peers of the input, or those of the DaemonSet ``name``; one at least.

    Raises:
        ConfigError: There is none, or something in one is wrong.
    """
    every = all_found = list(workloads(source, configuration))
    _say(source.skipped)
    if name:
        all_found = [one for one in all_found if f"/{one.document.name}".endswith(f"/{name}")]
        if not all_found:
            raise ConfigError(f"{path}: no DaemonSet is called {name}")
    made = [Made(one, each, compare(one, each)) for one, each in _outermost(all_found)]
    if not made:
        raise ConfigError(_nothing_known(path, all_found))
    drop_others(source, every, made)
    settle_releases(source, [one.found for one in made])
    for one in made:
        one.migration.differences += one.found.release.notes if one.found.release else ()
    return made


def _outermost(found: Sequence[Found]) -> Iterator[tuple[Found, Migration]]:
    """Yield what is known, unless it is inside of what is: a chart's values have others in them."""
    known: dict[int, list[Migration]] = {}
    roots: set[Path] = set()
    for index in sorted(range(len(found)), key=lambda index: len(found[index].workload.root)):
        workload = found[index].workload
        if not any(workload.root[:end] in roots for end in range(len(workload.root))):
            known[index] = list(migrations(workload))
            roots |= {workload.root} if known[index] else set()
    for index in sorted(known):
        yield from ((found[index], one) for one in known[index])


def _migrate(options: argparse.Namespace) -> int:
    name, made = _made(options)
    found = _result.result(made, options, name)
    if options.directory:
        _result.write(found, options.directory)
    else:
        sys.stdout.writelines(found.files.values())
    return 0 if found.is_judged else _UNJUDGED


def _back(options: argparse.Namespace) -> int:
    sys.stdout.write(_result.way_back(_made(options)[1], options))
    return 0


def _input(options: argparse.Namespace) -> tuple[str, Input]:
    """Return what the input is called, and its documents."""
    paths: list[str] = options.manifest
    if bool(paths) == (options.from_cluster is not None):
        raise ConfigError("name a MANIFEST, or give --from-cluster")
    if [*paths, options.config].count("-") > 1:
        raise ConfigError("standard input cannot be both the manifest and --config")
    if paths:
        found = read_sources(paths)
        _say(found.skipped)
        return " ".join(paths), Input(found.documents, found.lenient)
    api = cluster_of(options, _CLIENT)
    progress = Progress(sys.stderr, command="migrate")
    try:
        survey = read_cluster(api, Reader(api, progress), options.from_cluster, _is_known)
    finally:
        progress.end()
    _say(survey.seen)
    return f"--from-cluster {options.from_cluster}".strip(), Input(survey.documents)


def _is_known(one: Mapping[str, Any]) -> bool:
    """Return whether a plugin knows an object of a cluster, which may lack ConfigMaps yet."""
    try:
        found = workloads(Input([("cluster", one)]), None)
        return any(True for each in found for _ in migrations(each.workload))
    except ConfigError:
        return True


def _say(lines: Sequence[str]) -> None:
    for line in lines:
        complain("deviceplugin migrate", line)


def _nothing_known(path: str, found: Sequence[Found]) -> str:
    reasons = {  # of a plugin that knows it, and that it is not migrated
        why: one.workload.place
        for one in reversed(found)
        for place, why in one.workload.account.dropped()
        if place in (one.workload.root, one.workload.root[:1])
    }
    if reasons:
        return "\n".join(f"{place}: {why}" for why, place in reversed(reasons.items()))
    names = ", ".join(one.name for one in plugins())
    known = f"the installed plugins that know peers are {names}"
    if not names:
        known = "no plugin is installed beside this command: install the one that is to replace it"
    kinds = ", ".join(dict.fromkeys(one.workload.kind for one in found if one.workload.kind))
    objects = f" and no {kinds} that we know" if kinds else ""
    shown = [one for one in outermost(found) if not one.workload.kind]
    if not shown:
        files = dict.fromkeys(one.document.file for one in found if one.document.is_kustomization)
        return "\n".join(
            [
                f"{path}: has no DaemonSet{objects} and no Helm values; {known}",
                *(
                    f"{one}: names manifests: {_render(one)} | deviceplugin migrate -"
                    for one in files
                ),
            ]
        )
    places = [*map(_looked_at, shown)]
    more = f"; and {len(places) - _MOST} more" if len(places) > _MOST else ""
    cures = dict.fromkeys(
        f"{one.workload.place}: looked for image.repository at any depth, and for names and keys "
        f"of charts; the manifests say more: {one.release.rendered} | deviceplugin migrate -"
        for one in shown[:_MOST]
        if one.release is not None and one.workload.values is not None
    )
    listed = "; ".join(places[:_MOST])
    return "\n".join([f"{listed}{more}: not a device plugin that we know; {known}", *cures])


def _render(kustomization: str) -> str:
    return f"kubectl kustomize {shlex.quote(posixpath.dirname(kustomization) or '.')}"


def _looked_at(found: Found) -> str:
    place, values = found.workload.place, found.workload.values
    if values is None:
        return f"{place}: image {found.workload.image!r}"
    if found.workload.kind or not values:
        return f"{place}: {'an object' if found.workload.kind else 'no Helm values'}"
    return f"{place}: Helm values with the keys {bounded(', '.join(map(str, values)))}"


def _parser(command: str, description: str, examples: str) -> argparse.ArgumentParser:
    parser = _command_line.parser(command, description, examples)
    add = parser.add_argument
    words = "a file, a folder, or - for standard input; several are one input"
    add("manifest", metavar="MANIFEST", nargs="*", help=words)
    words = "read what the cluster has, in all namespaces or in this one; nothing is changed there"
    add("--from-cluster", nargs="?", const="", metavar="NAMESPACE", help=words)
    add_cluster(parser)
    add("--config", metavar="FILE", help="the other plugin's configuration file")
    add("--name", metavar="NAME", help="the DaemonSet, if there are several")
    words = "print an overlay although keys are not understood: they are listed as differences"
    add("--partial", action="store_true", help=words)
    _result.add_options(parser)
    return parser
