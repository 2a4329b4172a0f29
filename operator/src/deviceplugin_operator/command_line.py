"""The command ``deviceplugin-operator``."""

import argparse
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn

import deviceplugin as dp
from deviceplugin.apiserver import ApiServer
from deviceplugin.kit.configuration import matches, plain_documents
from deviceplugin_operator import rights
from deviceplugin_operator.crd import specification
from deviceplugin_operator.crd.catalogue import resources_problem
from deviceplugin_operator.names import IMAGE, KIND, NAME, SPACE


def main(argv: Sequence[str] | None = None) -> NoReturn:
    """Run ``deviceplugin-operator``, and exit."""
    options = _parser().parse_args(argv)
    if options.command == "check":
        raise SystemExit(_check(options.file))
    try:
        if options.command == "rights":
            sys.stdout.write(_rights(options))
        else:
            _run(options)
    except dp.ConfigError as error:
        sys.stderr.write(f"deviceplugin-operator: {error}\n")
        raise SystemExit(2) from None
    except KeyboardInterrupt:  # before kopf has taken the signals
        raise SystemExit(130) from None
    raise SystemExit(0)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="deviceplugin-operator",
        description="Runs device plugins as objects ask for.",
    )
    commands = parser.add_subparsers(dest="command", required=True)
    check = commands.add_parser(
        "check", help="check files with DevicePlugin objects, without a cluster"
    )
    check.add_argument("file", nargs="+", type=Path, help="YAML file; - is the standard input")
    rights = commands.add_parser(
        "rights",
        help="print what an administrator applies once for DRA: accounts, roles, policies, classes",
        description="Prints the accounts, roles, policies and DeviceClasses that DevicePlugin "
        "objects with a protocol need, for kubectl apply. Without a cluster.",
    )
    rights.add_argument("file", nargs="+", type=Path, help="YAML file; - is the standard input")
    rights.add_argument(
        "--namespace",
        default=os.environ.get("POD_NAMESPACE", "deviceplugin-operator"),
        help="namespace of the operator (default: POD_NAMESPACE, or deviceplugin-operator)",
    )
    rights.add_argument(
        "--classes",
        help="resources that need a DeviceClass, such as example.com/a,example.com/b, or none "
        "(default: those that the objects name in full)",
    )
    run = commands.add_parser("run", help="run the operator")
    run.add_argument(
        "--namespace",
        default=os.environ.get("POD_NAMESPACE", ""),
        help="namespace of the DaemonSets (default: POD_NAMESPACE)",
    )
    run.add_argument(
        "--image-prefix",
        default=os.environ.get("IMAGE_PREFIX", ""),
        help="prefix of images, such as registry.example.com/ (default: IMAGE_PREFIX)",
    )
    run.add_argument(
        "--api-server",
        default="",
        help="its address (default: that of the pod's cluster)",
    )
    run.add_argument(
        "--alive",
        type=Path,
        help="file for the probe: python -m deviceplugin_operator.liveness FILE",
    )
    return parser


def _run(options: argparse.Namespace) -> None:
    """Run the operator until SIGTERM or SIGINT."""
    from deviceplugin_operator import shell  # with kopf, which no other command needs
    from deviceplugin_operator.controller import Controller

    if not options.namespace:
        raise dp.ConfigError("--namespace or POD_NAMESPACE is needed, for the DaemonSets")
    if not matches(f"{options.image_prefix}a", IMAGE):
        raise dp.ConfigError(
            f"--image-prefix {options.image_prefix!r} cannot begin an image: an example is "
            "registry.example.com/"
        )
    name = "deviceplugin-operator"
    given = options.api_server
    api = ApiServer(given, name=name) if given else ApiServer.of_pod(name=name)
    controller = Controller(api, options.namespace, prefix=options.image_prefix)
    shell.run(controller, options.namespace, api.url, alive=options.alive)


def _rights(options: argparse.Namespace) -> str:
    """Return what is printed for the administrator; ConfigError if anything is wrong."""
    given = options.classes
    chosen = None if given is None else [] if given == "none" else given.split(",")
    problems = [
        f"--classes: {name!r} {problem}"
        for name in chosen or ()
        if (problem := resources_problem(name) or ("is several" if "*" in name else ""))
    ]
    if not matches(options.namespace, SPACE):
        problems.append(f"--namespace {options.namespace!r} is not the name of a namespace")
    try:
        objects = [one for file in options.file for one in _objects(file)]
    except OSError as error:
        raise dp.ConfigError(f"{error.filename}: {error.strerror}") from error
    problems += [f"{name}: {line}" for name, lines in map(_judged, objects) for line in lines]
    if problems:
        raise dp.ConfigError("\n".join(problems))
    wanted = map(specification.read, objects)
    if not (made := rights.rendered(wanted, options.namespace, chosen)):
        raise dp.ConfigError(f"no {KIND} has settings with a protocol, so none needs rights")
    return made


def _objects(file: Path) -> Iterator[dict[str, Any]]:
    """Yield the DevicePlugin objects of a file, also of a list as kubectl prints it."""
    text = sys.stdin.buffer.read() if str(file) == "-" else file.read_bytes()
    for one in plain_documents(text):
        is_list = isinstance(one, dict) and one.get("kind") == "List"
        items = one.get("items") if is_list else [one]
        items = items if isinstance(items, list) else []
        yield from (each for each in items if isinstance(each, dict) and each.get("kind") == KIND)


def _check(files: Sequence[Path]) -> int:
    """Print what is wrong with the objects in ``files``; return 2 if anything is."""
    lines = [line for file in files for line in _faults(file)]
    sys.stderr.writelines(f"deviceplugin-operator: {line}\n" for line in lines)
    return 2 if lines else 0


def _faults(file: Path) -> Iterator[str]:
    """Yield what is wrong with a file, and print the names of valid objects."""
    try:
        ours = [*_objects(file)]
    except (OSError, dp.ConfigError) as error:
        yield f"{file}: {error.strerror if isinstance(error, OSError) else error}"
        return
    if not ours:
        yield f"{file}: has no {KIND}"
    for one in ours:
        name, problems = _judged(one)
        yield from (f"{file}: {name}: {line}" for line in problems)
        if not problems:
            sys.stdout.write(f"{file}: {name}: valid\n")


def _judged(found: dict[str, Any]) -> tuple[str, list[str]]:
    """Return the name of an object, and what is wrong with it."""
    metadata = found.get("metadata")
    name = metadata.get("name") if isinstance(metadata, dict) else None
    if not isinstance(name, str) or not matches(name, NAME):
        return str(name), ["metadata.name: 1 to 40 lower-case letters, digits and hyphens"]
    try:
        specification.read(found)
    except dp.ConfigError as error:
        return name, str(error).splitlines()
    return name, []
