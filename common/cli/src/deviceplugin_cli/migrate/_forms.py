"""The forms in which people keep a device plugin, by the kind of the document."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from deviceplugin.errors import ConfigError
from deviceplugin.kit.migration import Account, Path, Workload
from deviceplugin_cli.migrate._containers import Found, Release, of_daemon_set
from deviceplugin_cli.migrate._documents import Document, Input
from deviceplugin_cli.migrate.charts._argo import of_application, of_application_set
from deviceplugin_cli.migrate.charts._generators import generate
from deviceplugin_cli.migrate.charts._releases import (
    of_helm_release,
    of_helmfile,
    of_k3s,
    of_kustomization,
)
from deviceplugin_cli.migrate.charts._rendering import NOT_TAKEN, Values
from deviceplugin_cli.migrate.charts._values import PLUGIN_NAME, of_values

_WRAPPERS: Final[Mapping[tuple[str, str], Callable[[Document, Input], Iterator[Values]]]] = {
    ("helm.toolkit.fluxcd.io", "HelmRelease"): of_helm_release,
    ("argoproj.io", "Application"): of_application,
    ("argoproj.io", "ApplicationSet"): of_application_set,
    ("helm.cattle.io", "HelmChart"): of_k3s,
    ("kustomize.config.k8s.io", "Kustomization"): of_kustomization,
}
"""What gives values to charts, by group and kind."""

_OF_PLUGIN: Final = {"args", "command", "env", "envFrom"}
"""Parts of a container that a plugin has to know."""


def workloads(source: Input, configuration: str | None) -> Iterator[Found]:
    """Yield the containers of DaemonSets, Helm values, and objects; raise ``ConfigError``."""
    documents = [*source.documents]
    generate(source)
    # What gives values names files, which are no values of their own then.
    given = {one.number: [*_wrapped(one, source)] for one in documents}
    for one in documents:
        for found in _of_document(one, source, given[one.number], configuration):
            source.found.append(found)
            yield found


def _of_document(
    document: Document, source: Input, given: Sequence[Values], configuration: str | None
) -> Iterator[Found]:
    for one in given:
        yield from _known(one, configuration)
    if document.number in source.used or given:
        return
    if document.kind == "DaemonSet":
        yield from _of_daemon_set(document, source, configuration)
    elif not document.kind and "apiVersion" not in document.content:
        numbers = frozenset((document.number,))
        release = Release(rendered="helm template RELEASE CHART --values FILE", numbers=numbers)
        values = Values(source, document.place, (document.number,), release, document)
        yield from _known(values, configuration)
    elif document.kind and "/" in str(document.content.get("apiVersion", "")):
        yield _of_object(document, source, configuration)


def _of_daemon_set(document: Document, source: Input, configuration: str | None) -> list[Found]:
    try:
        return list(of_daemon_set(document, source, configuration))
    except ConfigError as error:
        if document.place not in source.lenient:
            raise
        source.skipped.append(f"{error}: skipped")
        return []


def _known(values: Values, configuration: str | None) -> list[Found]:
    """Return what values install; nothing if they are wrong and not of a device plugin."""
    try:
        return [*of_values(values, configuration)]
    except ConfigError:
        if any(PLUGIN_NAME.search(one) for one in (values.chart, *_images(values.see()))):
            raise
        for number in values.release.numbers:
            values.source.account.drop((number,), NOT_TAKEN)
        return []


def _images(given: Any) -> Iterator[str]:
    """Yield the names of images at any depth."""
    if isinstance(given, Mapping):
        yield from (str(given[key]) for key in ("image", "repository") if key in given)
        given = [*given.values()]
    for one in given if isinstance(given, list) else []:
        yield from _images(one)


def _wrapped(document: Document, source: Input) -> Iterator[Values]:
    group = str(document.content.get("apiVersion", "")).partition("/")[0]
    if found := _WRAPPERS.get((group, document.kind)):
        yield from found(document, source)
    elif not document.kind and "releases" in document.content:
        yield from of_helmfile(document, source)


def outermost(found: Sequence[Found]) -> list[Found]:
    """Return what is not inside of another: values of a known chart may have charts in them."""
    roots = {one.workload.root for one in found}
    return [
        one
        for one in found
        if not any(one.workload.root[:length] in roots for length in range(len(one.workload.root)))
    ]


def settle_releases(source: Input, made: Sequence[Found]) -> None:
    """Account for what charts make of values, and for releases that are not migrated."""
    account = source.account
    numbers = {number for one in made if one.release for number in one.release.numbers}
    source.used |= numbers
    for one in made:
        _drop_parts(one)
        if one.release and not one.parts:
            _take_image(one)
    for number in numbers:
        _take_around(source.documents[number], account)
    for one in source.found:
        if one.release is None or one in made:
            continue
        if numbers & one.release.numbers:
            _leave(one, [each.scope for each in made])
        else:
            for number in one.release.numbers:
                account.drop((number,), NOT_TAKEN)


def _take_around(document: Document, account: Account) -> None:
    """Account for what is not about a release: the object, and what YAML is repeated from."""
    anchors = [key for key in document.content if str(key).startswith("x-")]
    for key in ("apiVersion", "kind", "metadata", "operation", "status", *anchors):
        account.take((document.number, key))


def _drop_parts(one: Found) -> None:
    """Account for what a chart makes of values and is not for the plugin to understand."""
    for part in one.parts:
        if not _OF_PLUGIN.isdisjoint(part):
            continue
        path = (one.document.number, *part)
        if not one.workload.account.knows(path):
            one.workload.account.drop(path, NOT_TAKEN)


def _take_image(made: Found) -> None:
    """Account for the image of a chart, from which it was known."""
    account, root = made.workload.account, (*made.workload.root, "image")
    if not isinstance(account.get(root), Mapping):
        account.take(root)
    for key in ("tag", "pullPolicy", "registry", "repository", "digest"):
        account.take((*root, key))


def _leave(one: Found, scopes: Sequence[Path]) -> None:
    """Account for what else is in the values of which a part is migrated."""
    account, scope = one.workload.account, one.scope
    if any(scope[: len(each)] == each for each in scopes):
        return
    # Of values around those that are migrated, the other keys are of other charts.
    kept = [each for each in scopes if each[: len(scope)] == scope]
    around = dict.fromkeys(each[:end] for each in kept for end in range(len(scope), len(each)))
    for path in around:
        for key in account.get(path):
            if (*path, key) not in (*around, *kept):
                account.drop((*path, key), NOT_TAKEN)
    if not kept:
        account.drop(scope, NOT_TAKEN)
    for part in one.parts:
        account.drop((one.document.number, *part), NOT_TAKEN)


def _of_object(document: Document, source: Input, configuration: str | None) -> Found:
    """Return an object that an operator reads: the plugins know their peers' by the kind."""
    workload = Workload(
        place=f"{document.place}: {document.kind} {document.name}",
        values=document.content,
        kind=document.kind,
        configuration=configuration,
        account=source.account,
        root=(document.number,),
    )
    return Found(workload, document, {}, (document.number,), {})
