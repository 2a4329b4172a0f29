"""What installs Helm charts, and the values that it gives, merged in the order of the tool."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from deviceplugin.kit.migration import Path
from deviceplugin_cli.migrate._containers import Release
from deviceplugin_cli.migrate._documents import Document, Input, mapping
from deviceplugin_cli.migrate.charts._layers import of_pairs, typed
from deviceplugin_cli.migrate.charts._rendering import NOT_TAKEN, Values, written
from deviceplugin_cli.migrate.charts._wrapper import Wrapper, mappings, option

_IN_GIT: Final = "# and in git, or it is made anew"
_FLUX: Final = (
    *("chart", "chartRef", "dependsOn", "driftDetection", "healthCheckExprs", "install"),
    *("interval", "maxHistory", "persistentClient", "postRenderStrategy", "releaseName"),
    *("rollback", "serviceAccountName", "storageNamespace", "suspend", "targetNamespace", "test"),
    *("timeout", "uninstall", "upgrade", "waitStrategy"),
)
"""Keys of a HelmRelease that are about the release, which ours does not become."""
_REFERENCE: Final = ("kind", "name", "valuesKey", "targetPath", "optional", "literal")
_K3S: Final = (
    *("authPassCredentials", "authSecret", "backOffLimit", "bootstrap", "chart", "chartContent"),
    *("createNamespace", "dockerRegistrySecret", "failurePolicy", "helmVersion", "insecureSkipTLS"),
    *("jobImage", "repo", "repoCA", "repoCAConfigMap", "targetNamespace", "timeout", "version"),
)
_HELMFILE: Final = (
    "name",
    "namespace",
    "chart",
    "version",
    "installed",
    "labels",
    "wait",
    "atomic",
)
_KUSTOMIZE: Final = (
    *("apiVersions", "includeCRDs", "kubeVersion", "name", "nameTemplate", "namespace"),
    *("releaseName", "repo", "skipHooks", "skipTests", "valuesMerge", "version"),
)
_UNFILLED: Final = re.compile(r"\$\{[A-Za-z_][^}]*\}")
_PATCHES: Final = "changes the manifests and is not read: {} | deviceplugin migrate - reads them"


def of_helm_release(document: Document, source: Input) -> Iterator[Values]:
    """Yield the values of a HelmRelease of Flux."""
    spec, meta = mapping(document.content, "spec"), mapping(document.content, "metadata")
    name, namespace = str(meta.get("name") or "NAME"), str(meta.get("namespace") or "")
    target = str(spec.get("targetNamespace") or "")
    release = str(spec.get("releaseName") or (f"{target}-{name}" if target else name))
    made = Wrapper(
        document,
        source,
        Release(
            release,
            target or namespace,
            f"kubectl {option(namespace)}delete helmrelease {name}  {_IN_GIT}",
            f"helm {option(target or namespace)}get manifest {release}",
            {
                "labels": {
                    "helm.toolkit.fluxcd.io/name": name,
                    "helm.toolkit.fluxcd.io/namespace": namespace,
                }
            },
        ),
    )
    made.take(("spec",), _FLUX)
    made.drop("the overlay is for the cluster that kubectl uses", "spec", "kubeConfig")
    made.drop(NOT_TAKEN, "spec", "commonMetadata")
    made.refuse(_PATCHES.format(made.release.rendered), "spec", "postRenderers")
    references = made.see("spec", "valuesFrom")
    numbered = [*enumerate(references if isinstance(references, list) else [])]
    each = [(index, one) for index, one in numbered if isinstance(one, Mapping)]
    for index, one in each:
        if not one.get("targetPath"):
            _reference(made, index, one, namespace)
    made.inline("spec", "values")
    for index, one in each:
        if one.get("targetPath"):
            _reference(made, index, one, namespace)
    chart, repository = _flux_chart(made, spec, namespace)
    found = made.values(chart, repository)
    yield replace(found, release=replace(found.release, notes=tuple(_unfilled(found))))


def _reference(made: Wrapper, index: int, given: Mapping[str, Any], namespace: str) -> None:
    """Add the values that a HelmRelease takes from a ConfigMap."""
    path: Path = ("spec", "valuesFrom", index)
    kind, name = given.get("kind"), str(given.get("name"))
    key = str(given.get("valuesKey") or "values.yaml")
    found = made.source.find(str(kind), name, namespace)
    if kind == "Secret":
        made.drop(f"the Secret {name} is not read: what it sets is not in this overlay", *path)
    elif found is None and given.get("optional"):
        made.drop(f"the {kind} {name} is not in the input: what it sets is not here", *path)
    elif found is None:
        made.refuse(f"the {kind} {name} is not in the input: add it as a document", *path)
    elif key not in mapping(found.content, "data"):
        made.refuse(f"the {kind} {name} has no {key}", *path)
    else:
        made.take(path, _REFERENCE)
        target, there = str(given.get("targetPath") or ""), (found.number, "data", key)
        if not target:
            made.text("data", key, number=found.number)
            return
        text = written(made.account.get(there)).strip()
        quoted = text[:1] in {"'", '"'} and text[:1] == text[-1:]
        value = text if given.get("literal") else text[1:-1] if quoted else typed(text)
        made.layers.append(of_pairs(made.source, made.place, [(target, value, there)]))


def _flux_chart(made: Wrapper, spec: Mapping[str, Any], namespace: str) -> tuple[str, str]:
    """Return the chart and where it comes from, as far as the input has it."""
    reference = mapping(spec, "chartRef")
    inner = mapping(mapping(spec, "chart"), "spec")
    if reference:
        name = str(reference.get("name"))
        there = str(reference.get("namespace") or namespace)
        found = made.source.find(str(reference.get("kind")), name, there)
        content = mapping(found.content, "spec") if found else {}
        url = str(content.get("url") or content.get("chart") or "")
        return url.removeprefix("oci://") or name, url
    for key in ("valuesFile", "valuesFiles"):
        made.drop("in the chart and not in the input", "spec", "chart", "spec", key)
    origin = mapping(inner, "sourceRef")
    there = str(origin.get("namespace") or namespace)
    found = made.source.find(str(origin.get("kind")), str(origin.get("name")), there)
    content = mapping(found.content, "spec") if found else {}
    # In a repository of Git, the name is a path to a chart of any name.
    chart = inner.get("chart") if origin.get("kind", "HelmRepository") == "HelmRepository" else ""
    return str(chart or ""), str(content.get("url") or origin.get("name") or "")


def _unfilled(values: Values) -> Iterator[str]:
    """Yield where a text has a variable that Flux fills in before it applies the object."""
    for path, text in _texts((), values.see()):
        if found := _UNFILLED.search(text):
            yield (
                f"{values.name(*path)}: {found[0]} is left as it is, for the postBuild of the Flux "
                "Kustomization that applies this: fill it in if there is none"
            )


def _texts(path: Path, given: Any) -> Iterator[tuple[Path, str]]:
    if isinstance(given, str):
        yield path, given
    inner = given.items() if isinstance(given, Mapping) else ()
    for key, one in enumerate(given) if isinstance(given, list) else inner:
        yield from _texts((*path, key), one)


def of_k3s(document: Document, source: Input) -> Iterator[Values]:
    """Yield the values of a HelmChart of k3s, with those of its HelmChartConfig."""
    spec, meta = mapping(document.content, "spec"), mapping(document.content, "metadata")
    name, namespace = str(meta.get("name") or "NAME"), str(meta.get("namespace") or "")
    target = str(spec.get("targetNamespace") or namespace)
    removal = f"kubectl {option(namespace)}delete helmcharts.helm.cattle.io {name}"
    rendered = f"helm {option(target)}get manifest {name}"
    made = Wrapper(document, source, Release(name, target, removal, rendered))
    made.take(("spec",), _K3S)
    made.text("spec", "valuesContent")
    config = source.find("HelmChartConfig", name, namespace)
    if config is not None:
        source.used.add(config.number)
        source.account.take((config.number, "spec", "failurePolicy"))
        made.text("spec", "valuesContent", number=config.number)
        made.numbers.add(config.number)
    made.drop("Secrets are not read: what they set is not here", "spec", "valuesSecrets")
    pairs = [
        (str(key), typed(written(one)), (document.number, "spec", "set", key))
        for key, one in mapping(spec, "set").items()
    ]
    if pairs:
        made.layers.append(of_pairs(source, made.place, pairs))
    yield made.values(str(spec.get("chart") or name), str(spec.get("repo") or ""))


def of_helmfile(document: Document, source: Input) -> Iterator[Values]:
    """Yield the values of the releases of a Helmfile."""
    for index, one in mappings(document.content, "releases"):
        path: Path = ("releases", index)
        name, namespace = str(one.get("name")), str(one.get("namespace") or "")
        removal = f"helmfile destroy --selector name={name}"
        rendered = f"helmfile template --selector name={name}"
        made = Wrapper(document, source, Release(name, namespace, removal, rendered))
        made.take(path, _HELMFILE)
        for key in ("repositories", "helmDefaults", "environments", "bases"):
            made.take((), (key,))
        _each_file(made, *path, "values")
        pairs = [
            (str(each.get("name")), _value(each), (document.number, *path, "set", place, "value"))
            for place, each in mappings(one, "set")
        ]
        for place, _ in mappings(one, "set"):
            made.take((*path, "set", place), ("name",))
        if pairs:
            made.layers.append(of_pairs(source, made.place, pairs))
        yield made.values(str(one.get("chart") or ""), "")


def of_kustomization(document: Document, source: Input) -> Iterator[Values]:
    """Yield the values of the charts that kustomize renders."""
    for index, one in mappings(document.content, "helmCharts"):
        path: Path = ("helmCharts", index)
        name = str(one.get("releaseName") or one.get("name"))
        namespace = str(one.get("namespace") or document.content.get("namespace") or "")
        rendered = "kustomize build --enable-helm ."
        made = Wrapper(
            document,
            source,
            Release(name, namespace, f"{rendered} | kubectl delete -f -", rendered),
        )
        made.take(path, _KUSTOMIZE)
        made.take((), ("resources", "namespace", "helmGlobals", "configMapGenerator"))
        made.refuse(_PATCHES.format(rendered), "patches")
        if one.get("valuesMerge") == "merge":
            made.inline(*path, "valuesInline")
        if given := one.get("valuesFile"):
            made.file(str(given), *path, "valuesFile")
        if one.get("valuesMerge") != "merge":
            made.inline(*path, "valuesInline")
        _each_file(made, *path, "additionalValuesFiles")
        yield made.values(str(one.get("name")), str(one.get("repo") or ""))


def _each_file(made: Wrapper, *path: str | int) -> None:
    """Add a list of files and of values."""
    given = made.see(*path)
    for index, one in enumerate(given if isinstance(given, list) else []):
        if isinstance(one, Mapping):
            made.inline(*path, index)
        else:
            made.file(str(one), *path, index)


def _value(given: Mapping[str, Any]) -> Any:
    return typed(written(given.get("value")))
