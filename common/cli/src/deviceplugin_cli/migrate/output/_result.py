"""The forms of the output, with the order of the migration and all differences as comments."""

import argparse
import shlex
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from deviceplugin.errors import ConfigError
from deviceplugin_cli.migrate._compare import Made
from deviceplugin_cli.migrate._meaning import KEPT
from deviceplugin_cli.migrate.output import _helm, _judge, _kustomize, _order
from deviceplugin_cli.migrate.output._deployments import Deployment, Image, deployments, image_of
from deviceplugin_cli.migrate.output._operator import device_plugin
from deviceplugin_cli.migrate.output._text import comments, to_yaml

KUSTOMIZE: Final = "kustomize"
OPERATOR: Final = "operator"
CHARTS: Final = {
    "helm-values": "values.yaml",
    "helmrelease": "release.yaml",
    "application": "application.yaml",
}
FORMS: Final = (KUSTOMIZE, *CHARTS, OPERATOR)
DEPLOYMENTS: Final = "device-plugins/deployments"
REPOSITORY: Final = "https://charts.example.com"
_LIGHT: Final = frozenset(
    {
        *("annotations", "dnsPolicy", "imagePullPolicy", "labels", "minReadySeconds"),
        *("revisionHistoryLimit", "schedulerName", "updateStrategy"),
    }
)
"""Fields that change neither what is offered nor where: they are listed where a form lacks them."""
_FILE: Final = "kustomization.yaml"
_PLACES: Final = {
    KUSTOMIZE: "Put it as {file} beside a checkout of device-plugins, and look at it with kubectl "
    "kustomize.",
    "helm-values": "Put it as {file} beside our chart, and look at it with helm template.",
    "helmrelease": "Put it as {file} where Flux finds it.",
    "application": "Put it as {file} where Argo CD finds it.",
    OPERATOR: "Put it as {file}; the operator of device-plugins has to be there.",
}


@dataclass(frozen=True)
class Result:
    """What is printed, or written into a folder."""

    files: dict[str, str]
    """Content by path; with one file, its path is of no importance."""
    is_judged: bool


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that ``result`` reads."""
    add = parser.add_argument
    add("--output", default=KUSTOMIZE, choices=FORMS, help=f"the form of the result ({KUSTOMIZE})")
    words = "write files there, which several peers and several configurations need"
    add("--directory", metavar="DIR", help=words)
    add("--image", metavar="NAME", help="our image as you have it, with registry and tag")
    words = f"where the overlay finds our manifests ({DEPLOYMENTS})"
    add("--deployments", default=DEPLOYMENTS, metavar="PATH", help=words)
    words = f"where Flux or Argo CD finds our chart ({REPOSITORY}, which is none)"
    add("--chart-repository", default=REPOSITORY, metavar="URL", help=words)


def result(all_made: Sequence[Made], options: argparse.Namespace, name: str) -> Result:
    """Return the result in the form that was asked for; ``name`` is that of the input.

    Raises:
        ConfigError: The form cannot say it, or our plugin would refuse it.
    """
    found = deployments(all_made, by_profile=options.output != OPERATOR)
    pairs = [(one, image_of(one, options.image)) for one in found]
    if len(pairs) > 1 and options.image and len({one.migration.plugin for one in found}) > 1:
        raise ConfigError("--image: there are several plugins: choose one with --name")
    if len(pairs) > 1 and options.output == KUSTOMIZE and not options.directory:
        raise ConfigError(_several(all_made, found))
    is_judged = min(map(_judge.judge, found))
    moves = _moves(pairs, by_selector=options.output == OPERATOR)
    make = {KUSTOMIZE: _overlays, OPERATOR: _objects}.get(options.output, _chart)
    files, apply, lost = make(pairs, options)
    main = next(iter(files))
    heavy = [one for one in lost if one.partition(": ")[0] not in _LIGHT]
    if heavy and not options.partial:
        words = f"--output {options.output} cannot say that; --partial prints the rest"
        raise ConfigError("\n".join([*heavy, words]))
    if options.output == OPERATOR:
        is_judged = _judge.judge_objects(files[main]) and is_judged
    told = [
        *_first(found, options),
        *([] if is_judged else [_unjudged(options.output)]),
        *_head(all_made, name),
        _PLACES[options.output].format(file=main),
        "",
        *_order.there(moves, apply, shlex.join(options.manifest) or name),
        "",
        *_differences(found, lost),
    ]
    return Result({**files, main: f"{comments(told)}{files[main]}"}, is_judged)


def _head(all_made: Sequence[Made], name: str) -> Iterator[str]:
    yield f"Made by deviceplugin migrate {name}"
    for one in all_made:
        workload = one.found.workload
        image = f", image {workload.image}" if workload.image else ""
        yield f"{workload.place}: taken for {one.migration.peer}{image}."


def way_back(all_made: Sequence[Made], options: argparse.Namespace) -> str:
    """Return the commands of the way back."""
    by_selector = options.output == OPERATOR
    found = deployments(all_made, by_profile=not by_selector)
    moves = _moves([(one, image_of(one, None)) for one in found], by_selector=by_selector)
    lines = _order.back(moves, _undo(options, found), options.manifest)
    return comments(lines)


def _moves(pairs: Sequence[tuple[Deployment, Image]], *, by_selector: bool) -> list[_order.Move]:
    of_peers: dict[int, list[tuple[Deployment, Image]]] = {}
    for one in pairs:
        of_peers.setdefault(id(one[0].made), []).append(one)
    return [
        _order.Move([one for one, _ in own], [image for _, image in own], by_selector)
        for own in of_peers.values()
    ]


def _several(all_made: Sequence[Made], found: Sequence[Deployment]) -> str:
    places = [f"{one.found.workload.place}: {one.migration.peer}" for one in all_made]
    if len(places) > 1:
        listed = "; ".join(places)
        return f"there are several: choose one with --name, or all with --directory: {listed}"
    label, titles = found[0].migration.profile_label, ", ".join(one.title for one in found[:-1])
    return (
        f"{places[0]}: nodes choose one of {len(found)} configurations by the label {label} "
        f"({titles}, or the rest): write a deployment of each with --directory DIR, or use "
        f"--output {OPERATOR}, whose objects follow the label"
    )


def _first(found: Sequence[Deployment], options: argparse.Namespace) -> Iterator[str]:
    """Yield what has to be seen first."""
    for made in {id(one.made): one.made for one in found}.values():
        migration, values = made.migration, ", ".join(made.migration.profiles)
        if migration.profiles and options.output == OPERATOR:
            yield (
                f"The label {migration.profile_label} of a node chooses its configuration: the "
                f"object follows it, by profileLabel, for {values} and the rest."
            )
        elif migration.profiles:
            yield (
                f"The label {migration.profile_label} of a node chooses its configuration: there "
                f"is a DaemonSet for each of {values}, and one for the rest."
            )
    if options.output in {"helmrelease", "application"} and options.chart_repository == REPOSITORY:
        yield (
            f"{REPOSITORY} is not a chart repository: push our chart to yours, and name it with "
            "--chart-repository URL."
        )


def _unjudged(form: str) -> str:
    beside = "deviceplugin-operator" if form == OPERATOR else "the plugin's package"
    return (
        f"Not judged: {beside} is not installed here, so nobody has checked whether this would be "
        "accepted."
    )


def _differences(found: Sequence[Deployment], lost: Sequence[str]) -> Iterator[str]:
    listed = [*lost]
    lacking = {one.partition(": ")[0].lower() for one in lost}
    several = len({id(one.made) for one in found}) > 1
    for one in {id(one.made): one for one in found}.values():
        own = [*one.migration.differences, *one.made.comparison.differences]
        kept = [each for line in own if (each := _without(line, lacking))]
        listed += [f"{one.name}: {each}" if several else each for each in kept]
    yield f"Differences ({len(listed)}):"
    yield from (f"* {one}" for one in listed)


def _without(line: str, lacking: Collection[str]) -> str:
    """Return a difference, without what it says is kept and the form lacks."""
    names, words, rest = line.partition(f": {KEPT}")
    left = [one for one in names.split(", ") if one.replace(".", "").lower() not in lacking]
    return f"{', '.join(left)}{words}{rest}" if left or not words else ""


_Parts = tuple[dict[str, str], list[str], list[str]]
"""Files, the first of which gets the comments; commands; and what the form cannot say."""


def _overlays(pairs: Sequence[tuple[Deployment, Image]], options: argparse.Namespace) -> _Parts:
    root = options.deployments.rstrip("/")
    if not options.directory:
        return {_FILE: _kustomize.overlay(*pairs[0], root)}, ["kubectl apply -k ."], []
    # A folder deeper, unless the path does not depend on the folder.
    below = root if root.startswith("/") or "//" in root else f"../{root}"
    files = {_FILE: _kustomize.of_folders([one.name for one, _ in pairs])}
    for one, image in pairs:
        files[f"{one.name}/{_FILE}"] = _kustomize.overlay(one, image, below)
    return files, [f"kubectl apply -k {shlex.quote(options.directory)}"], []


def _objects(pairs: Sequence[tuple[Deployment, Image]], _: argparse.Namespace) -> _Parts:
    objects: list[Any] = []
    lost: list[str] = []
    for one, image in pairs:
        made, own = device_plugin(one, image, _judge.defaults(one.migration.plugin))
        objects.append(made)
        lost += own
    text = "---\n".join(map(to_yaml, objects))
    return {"deviceplugins.yaml": text}, ["kubectl apply -f deviceplugins.yaml"], lost


def _chart(pairs: Sequence[tuple[Deployment, Image]], options: argparse.Namespace) -> _Parts:
    content, lost = _helm.values(pairs)
    file = CHARTS[options.output]
    name = _helm.release_name(one for one, _ in pairs)
    objects: list[Any] = [content]
    if options.output != "helm-values":
        make = _helm.helm_release if options.output == "helmrelease" else _helm.application
        objects = make(name, content, options.chart_repository)
    apply = {
        "helm-values": [f"helm upgrade --install {name} {_helm.CHART} --values {file}"],
        "helmrelease": [f"kubectl apply -f {file}"],
        "application": [f"kubectl apply -f {file}", f"argocd app sync {name}"],
    }[options.output]
    return {file: "---\n".join(map(to_yaml, objects))}, apply, lost


def _undo(options: argparse.Namespace, found: Sequence[Deployment]) -> list[str]:
    if options.output == KUSTOMIZE:
        return [f"kubectl delete -k {shlex.quote(options.directory or '.')}"]
    if options.output == OPERATOR:
        return [f"kubectl delete deviceplugin {_order.object_name(one)}" for one in found]
    name = _helm.release_name(found)
    kinds = {"helm-values": f"helm uninstall {name}"}
    kubectl = "kubectl --namespace {} delete {} {}"
    kinds["helmrelease"] = kubectl.format("flux-system", "helmrelease", name)
    kinds["application"] = kubectl.format("argocd", "application", name)
    return [kinds[options.output]]


def write(found: Result, directory: str) -> None:
    """Write the files into a folder that is new or empty; raise ``ConfigError``."""
    root = Path(directory)
    try:
        root.mkdir(parents=True, exist_ok=True)
        if any(root.iterdir()):
            raise ConfigError(f"--directory: {directory}: is not empty")
        for path, text in found.files.items():
            (root / path).parent.mkdir(exist_ok=True)
            (root / path).write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"--directory: {directory}: {error.strerror}") from error
