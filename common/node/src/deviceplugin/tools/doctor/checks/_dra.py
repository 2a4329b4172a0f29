"""What DRA drivers have on the node: directories, records of claims, and CDI files."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from deviceplugin._dra.claims.cdi_files import file_of
from deviceplugin._dra.claims.record import OtherVersionError, Record
from deviceplugin._dra.serving.server import SERVICE_SOCKET
from deviceplugin.checks import Finding, Node, failure, ok, warning
from deviceplugin.tools.doctor._check import Check
from deviceplugin.tools.doctor._sockets import State, state_of
from deviceplugin.tools.doctor.checks import _directories

_CLAIMS: Final = "claims"
_LOST: Final = (
    "the driver does not know what this claim has: it could give its devices to another claim, "
    "and does not clean them up."
)

_ASIDE: Final = (
    "the devices of a claim that the kubelet names are given to nobody else, and are not cleaned "
    "up."
)
_OTHER: Final = "use the release that wrote it, or delete the pod that has the claim."


def _check(node: Node) -> Iterator[Finding]:
    wanted = node.settings.protocol == "dra"
    path = node.at(node.settings.driver_dir)
    drivers = sorted(one.parent for one in path.glob(f"*/{_CLAIMS}")) if path.is_dir() else []
    if not wanted and not drivers:
        yield ok(path, "no driver has claims here; only protocol=dra needs it")
        return
    yield from _directory(node, path, "a driver cannot record the claims that it prepares.")
    if wanted:
        cdi = node.at(node.settings.cdi_dir)
        yield from _directory(node, cdi, "containers get nothing through DRA.")
    for driver in drivers:
        yield from _driver(node, driver)


def _directory(node: Node, path: Path, means: str) -> Iterator[Finding]:
    if not path.exists():
        do = "mount it at the same path as on the node (DirectoryOrCreate)."
        yield failure(path, "does not exist", means=means, do=do)
        return
    found = list(_directories.faults(node, path))
    yield from found
    if not found:
        yield ok(path, "is a writable directory")


def _driver(node: Node, directory: Path) -> Iterator[Finding]:
    records: dict[Path, Record] = {}
    for path in sorted((directory / _CLAIMS).iterdir()):
        if path.name.endswith(".json.bad"):
            yield failure(
                path,
                "was not a readable record of a claim, and has been set aside",
                means=_ASIDE,
                do="delete the pod that has the claim; the driver removes the file then.",
            )
        elif path.suffix == ".json" and not path.name.startswith("."):
            try:
                records[path] = Record.read(json.loads(path.read_bytes()))
            except OtherVersionError as error:
                yield failure(path, str(error), means=_ASIDE, do=_OTHER)
            except (ValueError, RecursionError) as error:
                do = "delete the pod that has the claim, then this file, and restart the driver."
                yield failure(path, str(error), means=_LOST, do=do)
    yield from _files(node, directory.name, records)
    yield from _served(node, directory, len(records))


def _files(node: Node, driver: str, records: dict[Path, Record]) -> Iterator[Finding]:
    cdi = node.at(node.settings.cdi_dir)
    for path, record in records.items():
        file = cdi / file_of(driver, record.claim.uid)
        if record.document is not None and not file.exists():
            yield failure(
                path,
                f"{record.claim} is prepared, but there is no {file}",
                means="its containers cannot start again: 'unresolvable CDI devices'.",
                do="start the driver, which writes the file again; it watches the directory.",
            )


def _served(node: Node, directory: Path, number: int) -> Iterator[Finding]:
    if not number:
        yield ok(directory, "has no prepared claims")
    elif state_of(directory / SERVICE_SOCKET, node.timeout / 10) is State.DEAD:
        yield warning(
            directory,
            f"nobody listens on {SERVICE_SOCKET}, and {number} claims are prepared",
            means="pods with these claims stay Terminating when they are deleted.",
            do="start the driver again. Before a driver is removed, run deviceplugin drain.",
        )
    else:
        yield ok(directory, f"serves, and has {number} prepared claims")


CHECK: Final = Check("dra", "directories, records and CDI files of DRA drivers", _check)
