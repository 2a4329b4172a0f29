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
from deviceplugin_cli.migrate._forms import workloads
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
_READ_BY_OTHERS: Final = ("data", "spec")
"""Keys of a ConfigMap, or of an object, that a migration of another document has read."""
_DEPLOYMENTS: Final = "device-plugins/deployments"


def plugins() -> list[EntryPoint]:
    return sorted(entry_points(group=GROUP), key=lambda entry: entry.name)


def migrations(workload: Workload, known: Sequence[Migrate]) -> Iterator[Migration]:
    """Yield what each plugin makes of a workload that it knows."""
    for migrate in known:
        if (found := migrate(workload)) is not None:
            yield found


def _loaded() -> Iterator[Migrate]:
    for entry in plugins():
        try:
            yield cast("Migrate", entry.load())
        except ImportError as error:
            raise ConfigError(f"the plugin {entry.name} cannot be imported: {error}") from error


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
    known = list(_loaded())
    made = [
        Made(one, migration, compare(one, migration))
        for one in all_found
        for migration in migrations(one.workload, known)
    ]
    if not made:
        raise ConfigError(_nothing_known(path, all_found, source))
    if len(made) > 1:
        listed = "; ".join(f"{one.found.workload.place}: {one.migration.peer}" for one in made)
        raise ConfigError(f"{path}: there are several: choose one with --name: {listed}")
    _settle(source, made, partial=options.partial)
    head = list(_head(made[0].found, made[0].migration, path))
    sys.stdout.write(overlay(made[0].migration, made[0].comparison, options.deployments, head))
    return 0


def _settle(source: Input, made: Sequence[Made], *, partial: bool) -> None:
    """List what is not taken over; raise ``ConfigError`` for what is not understood."""
    account, here = source.account, {one.found.document.number for one in made}
    for document in source.documents:
        is_read = any(account.knows((document.number, key)) for key in _READ_BY_OTHERS)
        for key in ("apiVersion", "kind", "metadata"):
            account.take((document.number, key))
        if document.number not in here and (not is_read or document.kind == "DaemonSet"):
            account.drop((document.number,), "not taken over")
    listed = [
        f"{account.name(path) or source.documents[int(path[0])].title}: {why}"
        for path, why in account.dropped()
    ]
    left = account.left()
    if left and not partial:
        raise ConfigError("\n".join([*left, _PARTIAL]))
    made[0].migration.differences += [*listed, *left]


def _nothing_known(path: str, found: Sequence[Found], source: Input) -> str:
    reasons = {
        why: one.workload.place
        for one in reversed(found)
        for place, why in source.account.dropped()
        if place in (one.workload.root, one.workload.root[:1])
    }
    if reasons:
        return "\n".join(f"{place}: {why}" for why, place in reversed(reasons.items()))
    names = ", ".join(one.name for one in plugins()) or "none"
    known = f"the installed plugins that know peers are {names}"
    if not found:
        return f"{path}: has no DaemonSet and no Helm values; {known}"
    places = "; ".join(
        f"{one.workload.place}: image {one.workload.image!r}"
        if one.workload.values is None
        else f"{one.workload.place}: "
        + (one.workload.kind or f"Helm values with the keys {', '.join(map(str, one.pod))}")
        for one in found
    )
    return f"{places}: not a device plugin that we know; {known}"


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
    if migration.switch:
        yield f"    {migration.switch}"
    elif kind := found.document.kind.lower():
        namespace, _, name = found.document.name.rpartition("/")
        where = f"--namespace {namespace} " if namespace else ""
        yield f"    kubectl {where}delete {kind} {name}"
    else:
        yield "    helm uninstall RELEASE"
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
