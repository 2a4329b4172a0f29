"""Asking a cluster, which may be busy, for its devices, with the rights that there are."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import partial
from http import HTTPStatus
from typing import Any, Final, TypeVar

from deviceplugin._platform.backoff import Backoff
from deviceplugin._platform.waiting import Waiter
from deviceplugin.apiserver import (
    ApiServer,
    ApiServerError,
    ForbiddenError,
    GoneError,
    InvalidError,
    NotFoundError,
    UnavailableError,
)
from deviceplugin.errors import ConfigError
from deviceplugin.tools._class_names import Names
from deviceplugin.tools._node_devices import API, GROUP, claimed_by, slice_of, tolerant
from deviceplugin.tools._requests import LIVING
from deviceplugin_cli.fleet import _fleet
from deviceplugin_cli.fleet._facts import (
    PATH,
    Held,
    NodeFacts,
    PluginObject,
    held,
    node_facts,
    plugin_object,
)
from deviceplugin_cli.fleet._fleet import Fleet
from deviceplugin_cli.fleet._progress import Progress

_PAGE: Final = 500
_SLICES: Final = 100
"""Objects of DRA in a page: a slice can have 200 kB."""
_RESTARTS: Final = 2
_ATTEMPTS: Final = 4
_FIRST_WAIT: Final = 1.0
_LAST_WAIT: Final = 8.0

_BUSY: Final = (429, 500, 502, 503, 504)
"""Statuses that may not last."""

_T = TypeVar("_T")
Object = dict[str, Any]
_NODES: Final = "/api/v1/nodes"
_PODS: Final = "/api/v1/pods"
_FEW: Final = 20
"""Nodes whose pods are listed node by node. For more, all pods of the cluster are listed."""


class Reader:
    """Lists of ``api``. A page at a time is in memory, and what ``reduce`` makes of the objects.

    A request that the server refuses for now, or that fails amid a list, is tried again, four times
    in all and with pauses. A list that the server has forgotten meanwhile is started again, twice.
    """

    def __init__(self, api: ApiServer, progress: Progress, waiter: Waiter | None = None) -> None:
        self._api = api
        self.progress = progress
        self._waiter = waiter or Waiter()

    def read(
        self,
        path: str,
        what: str,
        reduce: Callable[[Object], _T],
        query: Mapping[str, str] | None = None,
        size: int = _PAGE,
    ) -> list[_T]:
        """Return ``reduce`` of each object below ``path``; ``what`` they are, for the progress.

        ``size`` objects are read at a time.
        """
        paged: dict[str, str | int] = {**(query or {}), "limit": size}
        for _ in range(_RESTARTS):
            try:
                return list(self._each(path, what, reduce, paged))
            except GoneError:
                continue
        return list(self._each(path, what, reduce, paged))

    def _each(
        self, path: str, what: str, reduce: Callable[[Object], _T], query: Mapping[str, str | int]
    ) -> Iterator[_T]:
        count, token = 0, ""
        while True:
            more = {"continue": token} if token else {}
            answer = self._get(path, {**query, **more}, is_first=not token)
            try:
                metadata, items = answer["metadata"], answer.get("items") or []
                yield from map(reduce, items)
                token, left = metadata.get("continue", ""), metadata.get("remainingItemCount")
            except (LookupError, TypeError, AttributeError, ValueError) as error:
                raise UnavailableError(f"{path}: the answer is not a list of {what}") from error
            count += len(items)
            self.progress.show(what, count, count + left if isinstance(left, int) else None)
            if not token:
                return

    def _get(self, path: str, query: Mapping[str, str | int], *, is_first: bool) -> Object:
        backoff = Backoff(_FIRST_WAIT, _LAST_WAIT)
        for _ in range(_ATTEMPTS - 1):
            try:
                return self._api.get(path, query)
            except UnavailableError as error:
                broken = not error.status and not is_first  # at first: no network, no trust
                if not broken and error.status not in _BUSY:
                    raise
                self._waiter.pause(max(error.after, backoff.next_wait()))
        return self._api.get(path, query)


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked. Without resources or nodes, all are meant."""

    resources: Sequence[str] = ()
    """Patterns of names."""
    nodes: Sequence[str] = ()
    selector: str = ""
    """Labels of nodes, as kubectl has them."""
    pods: bool = True
    """Whether pods are read, which says how many devices are held."""

    def wants(self, resource: str) -> bool:
        return not self.resources or any(fnmatchcase(resource, one) for one in self.resources)


def answer(question: Question, reader: Reader) -> Fleet:
    """Return what the cluster says; raise ``ConfigError`` if the selector is wrong.

    Nodes that may not be listed are replaced by what the operator says of them. If that is nothing,
    ``ApiServerError`` is raised.
    """
    fleet = Fleet()
    fleet.objects = _objects(question, reader, fleet.unknown)
    try:
        nodes = fleet.nodes = _nodes(question, reader)
    except ForbiddenError as error:
        if error.status == HTTPStatus.UNAUTHORIZED:
            raise
        if fleet.objects is None:
            raise ForbiddenError(f"needs list nodes: {error}", status=error.status) from error
        _answer_by_objects(question, fleet, fleet.objects, error)
    else:
        pods = _pods(nodes, reader, fleet.unknown) if question.pods else None
        dra = _dra(question, reader, fleet.unknown)
        fleet.doubt = dra.doubt
        dra = dra.of_some(nodes) if question.nodes else dra
        anywhere = [] if question.nodes or question.selector else [_fleet.NOWHERE]
        rows = _fleet.of_nodes([*nodes, *anywhere], pods, dra)
        fleet.rows = [row for row in rows if question.wants(row.resource)]
        fleet.sums = _fleet.sums_of_rows(fleet.rows)
        found = {node.name for node in nodes}
        labels = f" with {question.selector}" if question.selector else ""
        fleet.missing += [f"node {name}{labels}" for name in question.nodes if name not in found]
    fleet.missing += [
        f"resource {pattern}{fleet.doubt}"
        for pattern in question.resources
        if not any(fnmatchcase(name, pattern) for name in fleet.sums)
    ]
    return fleet


def _answer_by_objects(
    question: Question, fleet: Fleet, objects: Sequence[PluginObject], error: ForbiddenError
) -> None:
    if question.nodes or question.selector:
        raise ForbiddenError(f"needs list nodes: {error}", status=error.status) from error
    sums = _fleet.sums_of_objects(objects)
    fleet.sums = {name: one for name, one in sums.items() if question.wants(name)}
    fleet.rows = _fleet.of_objects(objects, fleet.sums)
    fleet.unknown.append(
        f"all but the sums and the worst nodes, which are the operator's: needs list nodes: {error}"
    )


def _nodes(question: Question, reader: Reader) -> list[NodeFacts]:
    labels = {"labelSelector": question.selector} if question.selector else {}
    queries = [{**labels, "fieldSelector": f"metadata.name={name}"} for name in question.nodes]
    found: dict[str, NodeFacts] = {}
    so_far: dict[str, NodeFacts] = {}

    def keep(node: Object) -> NodeFacts:
        facts = so_far[node["metadata"]["name"]] = node_facts(node, question.wants)
        return facts

    reader.progress.found = lambda: _fleet.so_far(so_far.values())
    try:
        for query in queries or [labels]:
            found |= {one.name: one for one in reader.read(_NODES, "nodes", keep, query)}
    except InvalidError as error:
        nodes = [f"--node {name}" for name in question.nodes]
        words = ([f"--selector {question.selector}"] if question.selector else []) + nodes
        raise ConfigError(f"{' '.join(words) or _NODES}: {error}") from error
    return list(found.values())


def _pods(nodes: Sequence[NodeFacts], reader: Reader, unknown: list[str]) -> list[Held] | None:
    """Return what pods hold on ``nodes``, as far as these have devices; None if unknown."""
    names = [node.name for node in nodes if node.total]
    queries = [f"spec.nodeName={name},{LIVING}" for name in names]
    if len(names) > _FEW:
        queries = [f"spec.nodeName!=,{LIVING}"]
    found: list[Held] = []
    try:
        for query in queries:
            pods = reader.read(_PODS, "pods", held, {"fieldSelector": query})
            found += (pod for pod in pods if pod.devices)
    except ApiServerError as error:
        needs = "needs list pods in all namespaces: " if isinstance(error, ForbiddenError) else ""
        unknown.append(f"how many devices are held: {needs}{error}")
        return None
    return found


def _dra(question: Question, reader: Reader, unknown: list[str]) -> _fleet.Dra:
    """Return what is offered and held through DRA; nothing where the cluster does not have it."""
    queries = [{"fieldSelector": f"spec.nodeName={name}"} for name in question.nodes] or [{}]

    def read(plural: str, reduce: Callable[[Object], _T], *asked: Object) -> list[_T] | None:
        try:
            path = f"{API}/{plural}"
            pages = [reader.read(path, plural, tolerant(reduce), one, _SLICES) for one in asked]
        except NotFoundError:
            return []
        except ApiServerError as error:
            needs = f"needs list {plural}.{GROUP}: " if isinstance(error, ForbiddenError) else ""
            unknown.append(f"devices through DRA, as far as {plural} say: {needs}{error}")
            return None
        found = [one for page in pages for one in page]
        kept = [one for one in found if one is not None]
        if strange := len(found) - len(kept):
            unknown.append(f"{strange} of {len(found)} {plural}, which have another form")
        return kept

    names = Names(read("deviceclasses", dict, {}) or ())
    slices = read("resourceslices", partial(slice_of, names=names), *queries)
    claims = read("resourceclaims", partial(claimed_by, names=names), {})
    return _fleet.Dra(slices, None if claims is None else [one for each in claims for one in each])


def _objects(question: Question, reader: Reader, unknown: list[str]) -> list[PluginObject] | None:
    """Return the objects that are for resources that are asked for, or for none yet, by name."""
    try:
        found = reader.read(PATH, "DevicePlugin objects", plugin_object)
    except NotFoundError:  # there is no operator
        return None
    except ApiServerError as error:
        if not error.status:  # nobody answers
            raise
        forbidden = isinstance(error, ForbiddenError)
        needs = "needs list deviceplugins.deviceplugin.dev: " if forbidden else ""
        if error.status != HTTPStatus.UNAUTHORIZED:  # the nodes will say so
            unknown.append(f"whether DevicePlugin objects are ready: {needs}{error}")
        return None

    def is_wanted(one: PluginObject) -> bool:
        return not one.resources or any(question.wants(each["name"]) for each in one.resources)

    return sorted(filter(is_wanted, found), key=lambda one: one.name)
