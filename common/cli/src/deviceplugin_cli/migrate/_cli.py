"""The command line of ``deviceplugin migrate``, and what installed plugins know of their peers."""

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from importlib.metadata import EntryPoint, entry_points
from typing import Final, cast

from deviceplugin.errors import ConfigError
from deviceplugin.kit.migration import Migration, Workload
from deviceplugin.tools import _command_line
from deviceplugin_cli.migrate._compare import Made, compare
from deviceplugin_cli.migrate._containers import Found
from deviceplugin_cli.migrate._documents import Input, documents, read_text
from deviceplugin_cli.migrate._forms import outermost, settle_releases, workloads
from deviceplugin_cli.migrate._kustomize import overlay

GROUP: Final = "deviceplugin.migrate"
"""The group of entry points. The name of an entry point is that of the plugin."""

Migrate = Callable[[Workload], Migration | None]
_DESCRIPTION: Final = """\
Read the manifest or the Helm values of another device plugin, and print a kustomization.yaml that
deploys ours in its place, with our configuration in it. Comments at its top say for which plugin
the other was taken, what to delete first, and all that is different. Nothing is changed, and no
cluster is asked.

MANIFEST is a YAML file with a DaemonSet and the ConfigMaps that it mounts, or the values of a Helm
chart; - is standard input. Helm templates have to be rendered first: helm template ... |
deviceplugin migrate -"""
_EXAMPLES: Final = """\
examples:
  deviceplugin migrate daemonset.yaml > kustomization.yaml && kubectl kustomize .
  deviceplugin migrate daemonset.yaml --config conf.yaml    its configuration is in another file
  kubectl -n kube-system get ds,cm -o yaml | deviceplugin migrate - --name NAME

Exit status: 0 if an overlay was printed, 2 if there is nothing to migrate or something is wrong."""
_PARTIAL: Final = "nothing was printed; --partial prints the overlay without these keys"
_MOST: Final = 10
"""Workloads that a message names."""
_DEPLOYMENTS: Final = "device-plugins/deployments"


def plugins() -> list[EntryPoint]:
    return sorted(entry_points(group=GROUP), key=lambda entry: entry.name)


def migrations(workload: Workload) -> Iterator[Migration]:
    """Yield what each plugin makes of a workload that it knows."""
    for entry in plugins():
        try:
            migrate = cast("Migrate", entry.load())
        except ImportError as error:
            raise ConfigError(f"the plugin {entry.name} cannot be imported: {error}") from error
        if (found := migrate(workload)) is not None:
            yield found


def main(argv: Sequence[str]) -> int:
    return _command_line.run(_parser(), argv, _migrate)


def _migrate(options: argparse.Namespace) -> int:
    path: str = options.manifest
    if path == options.config == "-":
        raise ConfigError("standard input cannot be both the manifest and --config")
    source = Input(documents(path, read_text(path)))
    configuration = None if options.config is None else read_text(options.config)
    all_found = list(workloads(source, configuration))
    if options.name:
        all_found = [one for one in all_found if one.document.name.endswith(options.name)]
        if not all_found:
            raise ConfigError(f"{path}: no DaemonSet is called {options.name}")
    known = [(one, migration) for one in all_found for migration in migrations(one.workload)]
    outer = outermost([one for one, _ in known])
    made = [Made(*one, compare(*one)) for one in known if one[0] in outer]
    if not made:
        raise ConfigError(_nothing_known(path, all_found))
    if len(made) > 1:
        listed = "; ".join(f"{one.found.workload.place}: {one.migration.peer}" for one in made)
        raise ConfigError(f"{path}: there are several: choose one with --name: {listed}")
    settle_releases(source, [made[0].found])
    _settle(source, made, partial=options.partial)
    head = list(_head(made[0].found, made[0].migration, path))
    sys.stdout.write(overlay(made[0].migration, made[0].comparison, options.deployments, head))
    return 0


def _settle(source: Input, made: Sequence[Made], *, partial: bool) -> None:
    """List what is not taken over; raise ``ConfigError`` for what is not understood."""
    account, here = source.account, {one.found.document.number for one in made}
    for document in source.documents:
        if account.is_made(document.number):
            continue
        for key in ("apiVersion", "kind", "metadata"):
            account.take((document.number, key))
        is_apart = document.number not in {*here, *source.used}
        if is_apart and not account.knows((document.number, "data")):
            account.drop((document.number,), "not taken over")
    listed = [
        f"{account.name(path) or source.documents[int(path[0])].title}: {why}"
        for path, why in account.dropped()
    ]
    left = account.left()
    if left and not partial:
        raise ConfigError("\n".join([*left, _PARTIAL]))
    release = made[0].found.release
    made[0].migration.differences += [*listed, *left, *(release.notes if release else ())]


def _nothing_known(path: str, found: Sequence[Found]) -> str:
    names = ", ".join(one.name for one in plugins()) or "none"
    known = f"the installed plugins that know peers are {names}"
    if not found:
        return f"{path}: has no DaemonSet and no Helm values; {known}"
    shown = [one for one in outermost(found) if not one.workload.kind] or found
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


def _looked_at(found: Found) -> str:
    place, values = found.workload.place, found.workload.values
    if values is None:
        return f"{place}: image {found.workload.image!r}"
    if found.workload.kind or not values:
        return f"{place}: {'an object' if found.workload.kind else 'no Helm values'}"
    return f"{place}: Helm values with the keys {', '.join(map(str, values))}"


def _head(found: Found, migration: Migration, path: str) -> Iterator[str]:
    yield f"Made by deviceplugin migrate {path}"
    image = f", image {found.workload.image}" if found.workload.image else ""
    yield f"{found.workload.place}: taken for {migration.peer}{image}."
    yield ""
    yield (
        "Put it as kustomization.yaml beside a checkout of device-plugins, look at it with "
        "kubectl kustomize, and delete the other plugin first, because two plugins on a node take "
        "a resource from each other."
    )
    if found.release is not None:
        yield f"    {found.release.removal}"
    else:
        namespace, _, name = found.document.name.rpartition("/")
        where = f"--namespace {namespace} " if namespace else ""
        yield f"    kubectl {where}delete daemonset {name}"
    yield "    kubectl apply -k ."


def _parser() -> argparse.ArgumentParser:
    parser = _command_line.parser("migrate", _DESCRIPTION, _EXAMPLES)
    add = parser.add_argument
    add("manifest", metavar="MANIFEST", help="the file, or - for standard input")
    add("--config", metavar="FILE", help="the other plugin's configuration file")
    add("--name", metavar="NAME", help="the DaemonSet, if there are several")
    words = "print an overlay although keys are not understood: they are listed as differences"
    add("--partial", action="store_true", help=words)
    words = f"where the overlay finds our manifests ({_DEPLOYMENTS})"
    add("--deployments", default=_DEPLOYMENTS, metavar="PATH", help=words)
    return parser
