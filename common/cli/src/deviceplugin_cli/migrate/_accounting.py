"""What is listed in the end, and what nobody understands."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

from deviceplugin.errors import ConfigError
from deviceplugin.kit.migration import Path
from deviceplugin_cli.migrate._compare import Made
from deviceplugin_cli.migrate._containers import Found
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
    left = account.left()
    if left and not partial:
        raise ConfigError("\n".join([*left, _PARTIAL]))
    listed: dict[int, list[tuple[str, str, str]]] = {index: [] for index in range(len(made))}
    others = []
    for path, why in account.dropped():
        if len(path) == 1 and why == _UNUSED:
            others.append(source.documents[int(path[0])])
        else:
            listed[_owner(path, made)].append((*_name(source, path, made), why))
    for index, one in enumerate(made):
        one.migration.differences += _merged(listed[index])
    made[0].migration.differences += [*_by_kind(others), *left]


def _owner(path: Path, made: Sequence[Made]) -> int:
    """Return which peer a key is of: the container's, the document's, or one that reads it."""
    found = [one.found for one in made]
    inside = [one.workload.root == path[: len(one.workload.root)] for one in found]
    same = [path[0] in _numbers(one) for one in made]
    reads = [path[0] in one.read_from for one in found]
    return next((each.index(True) for each in (inside, same, reads) if any(each)), 0)


def drop_others(source: Input, found: Iterable[Found], made: Sequence[Made]) -> None:
    """Account for documents that were looked at, and of which nothing was made."""
    needed = {number for one in made for number in _numbers(one)}
    needed.update(number for one in made for number in one.found.read_from)
    for one in found:
        # Objects of an operator may be read for others.
        is_read = one.workload.kind and source.account.knows((one.document.number, "spec"))
        for number in {one.document.number, *one.read_from} - needed if not is_read else ():
            source.account.drop((number,), _UNUSED)


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
    used = {number for one in made for number in one.found.read_from}
    for document in source.documents:
        number = document.number
        is_config_map = document.kind == "ConfigMap" and number in used
        if not is_config_map and not account.knows((number,)):
            account.drop((number,), _UNUSED)
        if number in here or not (is_config_map or account.knows((number,))):
            continue
        for key in ("apiVersion", "kind", "metadata", "immutable", "status"):
            account.take((number, key))
        for key in mapping(document.content, "data") if is_config_map else ():
            if (number, "data", key) not in variables:
                account.drop((number, "data", key), "no file that the plugin reads")
        account.drop((number, "binaryData"), _UNUSED)


def _name(source: Input, path: Path, made: Sequence[Made]) -> tuple[str, str]:
    """Return how a key is called among the differences, without what stands around it.

    The first part is what an item of a list is called; empty for other keys.
    """
    document, index = source.documents[int(path[0])], len(path) - 1
    workloads = [one.found for one in made if one.found.document is document]
    if not workloads:
        title = f"{document.title}: " if document.kind else ""
        return "", f"{title}{source.account.name(path)}".removesuffix(": ")
    if isinstance(path[index], int) and path[index - 1] in _ITEMS:
        title = source.account.name(path).rpartition("[")[2].rstrip("]")
        return _ITEMS[str(path[index - 1])], title
    bases: list[Path] = [one.workload.root for one in workloads]
    bases += [one.pod_path for one in workloads]
    bases += [(*path[:1], "spec", "template"), (*path[:1], "metadata"), (*path[:1], "spec")]
    base = max((one for one in bases if path[: len(one)] == one), key=len, default=path[:1])
    return "", source.account.name((*path[:1], *path[len(base) :]))


def _merged(listed: Iterable[tuple[str, str, str]]) -> list[str]:
    """Return a line for each reason, with all that it stands for."""
    names: dict[tuple[str, str], list[str]] = {}
    for kind, name, why in dict.fromkeys(listed):
        names.setdefault((kind, why), []).append(name)
    return [
        f"{_plural(kind, len(found))}{', '.join(found)}: {why}"
        for (kind, why), found in names.items()
    ]


def _plural(kind: str, number: int) -> str:
    return f"{kind}{'s' if number > 1 and kind != 'envFrom' else ''} " if kind else ""


def _by_kind(documents: Iterable[Document]) -> list[str]:
    """Return a line for the documents that nothing was taken from."""
    in_order = sorted(documents, key=lambda one: one.number)
    found = Counter(one.kind or one.place for one in in_order)
    named = [kind if number == 1 else f"{kind} ({number})" for kind, number in found.items()]
    return [f"{', '.join(named)}: {_UNUSED}"] if named else []
