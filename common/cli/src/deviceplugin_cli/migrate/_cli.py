"""The command line of ``deviceplugin migrate``, and what installed plugins know of their peers."""

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from importlib.metadata import EntryPoint, entry_points
from typing import Final, cast

from deviceplugin.errors import ConfigError
from deviceplugin.kit.migration import Migration, Workload
from deviceplugin.tools import _command_line
from deviceplugin_cli.migrate import _output
from deviceplugin_cli.migrate._compare import Made, compare
from deviceplugin_cli.migrate._containers import Found
from deviceplugin_cli.migrate._documents import Input, documents, read_text
from deviceplugin_cli.migrate._forms import workloads

GROUP: Final = "deviceplugin.migrate"
"""The group of entry points. The name of an entry point is that of the plugin."""

Migrate = Callable[[Workload], Migration | None]
_DESCRIPTION: Final = """\
Read the manifest or the Helm values of another device plugin, and print what deploys ours in its
place, with our configuration in it. Comments at its top have the order of the migration, as
commands, in which no node is without its devices; and all that is different. Nothing is changed,
and no cluster is asked.

MANIFEST is a YAML file with a DaemonSet and the ConfigMaps that it mounts, or the values of a Helm
chart; - is standard input. Helm templates have to be rendered first: helm template ... |
deviceplugin migrate -

Two more commands: "deviceplugin migrate verify" compares the devices of the cluster before and
after, and "deviceplugin migrate back" prints the way back. A file of such a name is ./verify."""
_EXAMPLES: Final = """\
examples:
  deviceplugin migrate daemonset.yaml > kustomization.yaml && kubectl kustomize .
  deviceplugin migrate daemonset.yaml --config conf.yaml    its configuration is in another file
  deviceplugin migrate values.yaml --output helmrelease     as Flux has it
  deviceplugin migrate all.yaml --directory ours            several DaemonSets, a folder for each
  kubectl -n kube-system get ds,cm -o yaml | deviceplugin migrate - --name NAME

What our plugin would refuse is not printed. Exit status: 0 if something was printed, 2 if there is
nothing to migrate or something is wrong, 3 if it was printed and nobody could judge it, because our
plugin is not installed here."""
_BACK: Final = """\
Print the way back from ours to the other plugin, as commands, for the MANIFEST and the options that
"deviceplugin migrate" was given. Nothing is changed, and no cluster is asked."""
_BACK_EXAMPLES: Final = """\
examples:
  deviceplugin migrate back daemonset.yaml
  deviceplugin migrate back values.yaml --output helmrelease

To migrate a file that is called back, write ./back. Exit status: 0, or 2 as for migrate."""
_PARTIAL: Final = "nothing was printed; --partial prints the overlay without these keys"
_UNJUDGED: Final = 3


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
    """Migrate, or run the sub-command that comes first: files of these names need ``./``."""
    command, rest = (argv[0], argv[1:]) if argv else ("", argv)
    if command == "verify":
        from deviceplugin_cli.migrate import _verify  # with the client of the API server

        return _verify.main(rest)
    if command == "back":
        return _command_line.run(_parser("migrate back", _BACK, _BACK_EXAMPLES), rest, _back)
    return _command_line.run(_parser("migrate", _DESCRIPTION, _EXAMPLES), argv, _migrate)


def _made(options: argparse.Namespace) -> list[Made]:
    """Return what becomes of each peer of the input; raise ``ConfigError``."""
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
    made = [
        Made(one, migration, compare(one, migration))
        for one in all_found
        for migration in migrations(one.workload)
    ]
    if not made:
        raise ConfigError(_nothing_known(path, all_found))
    _settle(source, made, partial=options.partial)
    return made


def _migrate(options: argparse.Namespace) -> int:
    made = _made(options)
    found = _output.result(made, options, list(_head(made, options.manifest)))
    if options.directory:
        _output.write(found, options.directory)
    else:
        sys.stdout.writelines(found.files.values())
    return 0 if found.is_judged else _UNJUDGED


def _back(options: argparse.Namespace) -> int:
    sys.stdout.write(_output.way_back(_made(options), options))
    return 0


def _settle(source: Input, made: Sequence[Made], *, partial: bool) -> None:
    """List what is not taken over; raise ``ConfigError`` for what is not understood."""
    account, here = source.account, {one.found.document.number for one in made}
    for document in source.documents:
        for key in ("apiVersion", "kind", "metadata"):
            account.take((document.number, key))
        if document.number not in here and not account.knows((document.number, "data")):
            account.drop((document.number,), "not taken over")
    listed = [
        f"{account.name(path) or source.documents[int(path[0])].title}: {why}"
        for path, why in account.dropped()
    ]
    left = account.left()
    if left and not partial:
        raise ConfigError("\n".join([*left, _PARTIAL]))
    made[0].migration.differences += [*listed, *left]


def _nothing_known(path: str, found: Sequence[Found]) -> str:
    names = ", ".join(one.name for one in plugins()) or "none"
    known = f"the installed plugins that know peers are {names}"
    if not found:
        return f"{path}: has no DaemonSet and no Helm values; {known}"
    places = "; ".join(
        f"{one.workload.place}: image {one.workload.image!r}"
        if one.workload.values is None
        else f"{one.workload.place}: Helm values with the keys {', '.join(map(str, one.pod))}"
        for one in found
    )
    return f"{places}: not a device plugin that we know; {known}"


def _head(all_made: Sequence[Made], path: str) -> Iterator[str]:
    yield f"Made by deviceplugin migrate {path}"
    for one in all_made:
        workload = one.found.workload
        image = f", image {workload.image}" if workload.image else ""
        yield f"{workload.place}: taken for {one.migration.peer}{image}."


def _parser(command: str, description: str, examples: str) -> argparse.ArgumentParser:
    parser = _command_line.parser(command, description, examples)
    add = parser.add_argument
    add("manifest", metavar="MANIFEST", help="the file, or - for standard input")
    add("--config", metavar="FILE", help="the other plugin's configuration file")
    add("--name", metavar="NAME", help="the DaemonSet, if there are several")
    words = "print an overlay although keys are not understood: they are listed as differences"
    add("--partial", action="store_true", help=words)
    _output.add_options(parser)
    return parser
