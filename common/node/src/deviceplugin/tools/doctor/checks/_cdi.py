"""The directories of CDI specifications, from which runtimes add devices to containers."""

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from deviceplugin.checks import Finding, Node, failure, ok, unknown, warning
from deviceplugin.kit.cdi._files import SUFFIXES, SpecError, UnreadableYAMLError, names, read

_MEANS: Final = (
    "runtimes ignore the file; pods that get its devices fail with 'unresolvable CDI devices'."
)


def specifications(node: Node) -> Iterator[Finding]:
    owners: defaultdict[str, list[Path]] = defaultdict(list)
    # What is in the second wins over what is in the first.
    for directory in (node.at("etc/cdi"), node.at("var/run/cdi")):
        if not directory.is_dir():
            yield ok(directory, "does not exist; the first program that needs it creates it")
            continue
        for path in sorted(directory.iterdir()):
            yield from _file(path, owners)
    yield from _conflicts(owners)


def _file(path: Path, owners: defaultdict[str, list[Path]]) -> Iterator[Finding]:
    if path.suffix not in SUFFIXES:
        if path.suffix == ".yml":
            means = "runtimes read only .yaml and .json, and ignore it."
            yield warning(path, "ends in .yml", means=means, do="rename it to .yaml.")
        return
    try:
        devices = names(read(path))
    except UnreadableYAMLError:
        yield unknown(path, "is YAML, but PyYAML is not installed", "pip install pyyaml.")
    except SpecError as error:
        do = "remove it, and restart the plugin that wrote it, which writes it again."
        yield failure(path, str(error), means=_MEANS, do=do)
    except OSError as error:
        yield failure(path, f"cannot be read: {error.strerror}", means=_MEANS, do="run as root.")
    else:
        yield ok(path, f"has {len(devices)} devices")
        for device in devices:
            owners[device].append(path)


def _conflicts(owners: defaultdict[str, list[Path]]) -> Iterator[Finding]:
    for device, paths in sorted(owners.items()):
        if len(paths) < 2:  # noqa: PLR2004
            continue
        found = f"is in {' and '.join(map(str, paths))}"
        if len({path.parent for path in paths}) == len(paths):
            means = f"runtimes use the one in {paths[-1].parent}, and ignore the other."
            yield warning(device, found, means=means, do="remove the outdated one.")
        else:
            means = (
                "runtimes use neither: a pod that gets it fails with 'unresolvable CDI devices'."
            )
            do = "remove one of the files; two plugins, or two versions of one, wrote them."
            yield failure(device, found, means=means, do=do)
