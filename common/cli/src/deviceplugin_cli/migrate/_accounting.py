"""What is listed in the end, and what nobody understands."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

from deviceplugin.errors import ConfigError
from deviceplugin.kit.migration import Path
from deviceplugin_cli.migrate._compare import Made
from deviceplugin_cli.migrate._documents import Document, Input, mapping

_PARTIAL: Final = "nothing was printed; --partial prints the overlay without these keys"
_ITEMS: Final = {
    "containers": "container",
    "initContainers": "init container",
    "volumes": "volume",
    "env": "variable",
    "envFrom": "envFrom",
    "ownerReferences": "owner",
}
"""What the items of a list are called."""
_UNUSED: Final = "not taken over"


def settle(source: Input, made: Sequence[Made], *, partial: bool) -> None:
    """List what is not taken over; raise ``ConfigError`` for what is not understood."""
    account = source.account
    for one in made:
        _drop_containers(one, made)
    _drop_unused(source, made)
    here = {number: one for one in reversed(made) for number in _numbers(one)}
    left = account.left()
    if left and not partial:
        raise ConfigError("\n".join([*left, _PARTIAL]))
    listed: dict[int, list[tuple[str, str]]] = {index: [] for index in range(len(made))}
    others = []
    for path, why in account.dropped():
        number = int(path[0])
        document = source.documents[number]
        if len(path) == 1:
            others.append(document)
            continue
        owner = here.get(number)
        whose = made.index(owner) if owner else 0
        name = _name(source, path, made) if owner else f"{document.title}: {account.name(path)}"
        listed[whose].append((name, why))
    for index, one in enumerate(made):
        one.migration.differences += _merged(listed[index])
    made[0].migration.differences += [*_by_kind(others), *left]


def _numbers(made: Made) -> set[int]:
    """Return the documents that a peer is in."""
    release = made.found.release
    return {made.found.document.number, *(release.numbers if release else ())}


def _drop_containers(one: Made, made: Sequence[Made]) -> None:
    """Account for the containers beside that of a peer, but for those of other peers."""
    roots = [each.found.workload.root for each in made]
    path = (*one.found.pod_path, "containers")
    for index in range(len(one.found.pod.get("containers") or ())):
        if (*path, index) not in roots:
            one.found.workload.account.drop((*path, index), _UNUSED)


def _drop_unused(source: Input, made: Sequence[Made]) -> None:
    """Account for documents that no peer needs, and for keys of ConfigMaps that none reads."""
    account = source.account
    here = {one.found.document.number for one in made}
    variables = {
        one.path for each in made for one in each.found.workload.variables.values() if one.path
    }
    files = {one.path for each in made for one in each.found.workload.files.values()}
    used = {path[0] for path in variables | files}
    for document in source.documents:
        number = document.number
        if document.kind == "ConfigMap" and (number in used or account.knows((number, "data"))):
            for key in ("apiVersion", "kind", "metadata", "immutable"):
                account.take((number, key))
            account.drop((number, "binaryData"), _UNUSED)
            for key in mapping(document.content, "data"):
                if (number, "data", key) not in variables:
                    account.drop((number, "data", key), "is not a file that the plugin reads")
        elif number not in here and not account.knows((number,)):
            account.drop((number,), _UNUSED)


def _name(source: Input, path: Path, made: Sequence[Made]) -> str:
    """Return how a key is called among the differences: without what stands around it."""
    document, index = source.documents[int(path[0])], len(path) - 1
    if isinstance(path[index], int) and path[index - 1] in _ITEMS:
        title = source.account.name(path).rpartition("[")[2].rstrip("]")
        return f"{_ITEMS[str(path[index - 1])]} {title}"
    workloads = [one.found for one in made if one.found.document is document]
    bases: list[Path] = [one.workload.root for one in workloads]
    bases += [one.pod_path for one in workloads]
    bases += [(*path[:1], "spec", "template"), (*path[:1], "metadata"), (*path[:1], "spec")]
    base = max((one for one in bases if path[: len(one)] == one), key=len, default=path[:1])
    return source.account.name((*path[:1], *path[len(base) :]))


def _merged(listed: Iterable[tuple[str, str]]) -> list[str]:
    """Return a line for each reason, with all that it stands for."""
    names: dict[tuple[str, str], list[str]] = {}
    for name, why in dict.fromkeys(listed):
        kind, _, item = name.rpartition(" ")
        names.setdefault((kind, why), []).append(item)
    return [
        f"{kind + ('s' if len(found) > 1 and kind else '') + ' ' if kind else ''}"
        f"{', '.join(found)}: {why}"
        for (kind, why), found in names.items()
    ]


def _by_kind(documents: Iterable[Document]) -> list[str]:
    """Return a line for the documents that nothing was taken from."""
    found = Counter(one.kind or one.place for one in documents)
    named = [kind if number == 1 else f"{kind} ({number})" for kind, number in found.items()]
    return [f"{', '.join(named)}: {_UNUSED}"] if named else []
