"""Applications and ApplicationSets of Argo CD: the values that they give to charts."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from deviceplugin.kit.migration import Path
from deviceplugin_cli.migrate._containers import Release
from deviceplugin_cli.migrate._documents import Document, Input, mapping
from deviceplugin_cli.migrate.charts._layers import of_pairs, typed
from deviceplugin_cli.migrate.charts._rendering import Values, written
from deviceplugin_cli.migrate.charts._wrapper import Wrapper, mappings, option

_SPEC: Final = (
    *("destination", "ignoreDifferences", "info", "project", "revisionHistoryLimit", "syncPolicy"),
)
_SOURCE: Final = ("chart", "name", "path", "ref", "repoURL", "tagPrefix", "targetRevision")
_HELM: Final = (
    *("apiVersions", "ignoreMissingValueFiles", "kubeVersion", "namespace", "passCredentials"),
    *("releaseName", "skipCrds", "skipSchemaValidation", "skipTests", "version"),
)
_OTHER_TOOLS: Final = ("directory", "kustomize", "plugin")
_SET: Final = (
    *("goTemplate", "goTemplateOptions", "syncPolicy", "strategy", "preservedFields"),
    *("ignoreApplicationDifferences", "applyNestedSelectors", "generators"),
)
_PARAMETER: Final = re.compile(r"\{\{-?\s*\.?([^{}]*?)\s*-?\}\}")


def of_application(document: Document, source: Input) -> Iterator[Values]:
    """Yield the values of the sources of an Application."""
    name = str(mapping(document.content, "metadata").get("name") or "NAME")
    rendered = f"argocd app manifests {name}"
    release = Release(
        removal=f"argocd app delete {name} --cascade  # and in git, or it is made anew",
        rendered=rendered,
    )
    yield from _of_spec(document, source, name, release, ("spec",), document.number)


def _of_spec(
    document: Document, source: Input, name: str, release: Release, path: Path, number: int
) -> Iterator[Values]:
    """Yield the values of the specification of an application, in the document ``number``."""
    spec: Any = source.account.get((number, *path))
    spec = spec if isinstance(spec, Mapping) else {}
    for key in _SPEC:
        source.account.take((number, *path, key))
    source.account.drop((number, *path, "sourceHydrator"), "not read")
    sources = [((*path, "source"), mapping(spec, "source"))]
    sources += [((*path, "sources", index), one) for index, one in mappings(spec, "sources")]
    for where, one in sources:
        target = Wrapper(replace(document, number=number), source, release)
        target.take(where, _SOURCE)
        helm = mapping(one, "helm")
        namespace = mapping(spec, "destination").get("namespace") or helm.get("namespace")
        target.release = replace(
            release,
            name=str(helm.get("releaseName") or name),
            namespace=str(namespace or ""),
            marks={"annotations": {"argocd.argoproj.io/tracking-id": f"{name}:"}},
        )
        for key in _OTHER_TOOLS:
            why = f"is not read: {release.rendered} | deviceplugin migrate - reads its manifests"
            target.refuse(why, *where, key)
        # A path has any manifests, or a chart of any name.
        if one.get("chart") or one.get("path"):
            _layers(target, (*where, "helm"), helm)
            found = target.values(str(one.get("chart") or ""), str(one.get("repoURL") or ""))
            numbers = found.release.numbers | {document.number}
            yield replace(found, document=document, release=replace(found.release, numbers=numbers))


def _layers(made: Wrapper, path: Path, helm: Mapping[str, Any]) -> None:
    """Add values in the order in which later ones win."""
    made.take(path, _HELM)
    optional = helm.get("ignoreMissingValueFiles") is True
    files = helm.get("valueFiles")
    for index, one in enumerate(files if isinstance(files, list) else []):
        # A file of another source is $NAME/path.
        name = str(one).partition("/")[2] if str(one).startswith("$") else str(one)
        made.file(name, *path, "valueFiles", index, optional=optional)
    if helm.get("valuesObject"):
        made.take(path, ("values",))
        made.inline(*path, "valuesObject")
    else:
        made.text(*path, "values")
    made.refuse("are not read: write them as valuesObject", *path, "fileParameters")
    pairs = []
    for index, one in mappings(helm, "parameters"):
        here: Path = (*path, "parameters", index)
        made.take(here, ("name", "forceString"))
        text = written(one.get("value"))
        value = text if one.get("forceString") else typed(text)
        pairs.append((str(one.get("name")), value, (made.document.number, *here, "value")))
    if pairs:
        made.layers.append(of_pairs(made.source, made.place, pairs))


def of_application_set(document: Document, source: Input) -> Iterator[Values]:
    """Yield the values of the applications of a set, once where they are the same for several.

    Those of lists are known. What another generator fills in is refused.
    """
    account, number = source.account, document.number
    spec = mapping(document.content, "spec")
    meta = mapping(document.content, "metadata")
    name = str(meta.get("name") or "NAME")
    for key in _SET:
        account.take((number, "spec", key))
    account.take((number, "spec", "template", "metadata"))
    rendered = f"argocd appset generate {name}.yaml -o yaml"
    if account.get((number, "spec", "templatePatch")):
        account.refuse((number, "spec", "templatePatch"), f"is not read: {rendered} applies it")
    elements, others = _elements(spec)
    namespace = option(str(meta.get("namespace") or ""))
    release = Release(
        removal=f"kubectl {namespace}delete applicationset {name}  # and in git",
        rendered=rendered,
        application_set=(name, str(meta.get("namespace") or "")),
    )
    done: list[Any] = []
    for element in elements or [{}]:
        template = _filled(mapping(spec, "template"), element)
        inner = mapping(template, "spec")
        what = (inner.get("source"), inner.get("sources"))
        if what in done:
            continue
        done.append(what)
        made = source.add(
            document.place, template, lambda path: [(number, "spec", "template", *path)]
        ).number
        called = str(mapping(template, "metadata").get("name") or name)
        view = replace(document, content={**document.content, "metadata": {**meta, "name": called}})
        for path in _unfilled(("spec",), {"source": what[0], "sources": what[1]}):
            why = f"is filled in by the generators {', '.join(others) or 'of this set'}: {rendered}"
            account.refuse((made, *path), f"{why} | deviceplugin migrate - reads what they make")
        yield from _of_spec(view, source, called, release, ("spec",), made)


def _elements(spec: Mapping[str, Any]) -> tuple[list[Mapping[str, Any]], list[str]]:
    """Return the elements of lists, and the names of other generators."""
    elements: list[Mapping[str, Any]] = []
    others: list[str] = []
    for _, one in mappings(spec, "generators"):
        elements += [each for _, each in mappings(mapping(one, "list"), "elements")]
        others += [str(key) for key in one if key not in {"list", "selector"}]
    return elements, others


def _filled(given: Any, element: Mapping[str, Any]) -> Any:
    """Return a template with the parameters of an element in it; others stay as they are."""

    def value(found: re.Match[str]) -> str:
        part: Any = element
        for step in found[1].split("."):
            part = part.get(step) if isinstance(part, Mapping) else None
        return found[0] if part is None or isinstance(part, (Mapping, list)) else written(part)

    if isinstance(given, str):
        return _PARAMETER.sub(value, given)
    if isinstance(given, Mapping):
        return {key: _filled(one, element) for key, one in given.items()}
    return [_filled(one, element) for one in given] if isinstance(given, list) else given


def _unfilled(path: Path, given: Any) -> Iterator[Path]:
    """Yield the paths of texts that have a template."""
    if isinstance(given, str) and "{{" in given:
        yield path
    inner = given.items() if isinstance(given, Mapping) else ()
    for key, one in enumerate(given) if isinstance(given, list) else inner:
        yield from _unfilled((*path, key), one)
