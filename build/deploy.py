"""Deploy a plugin to the cluster that kubectl is set up for, or remove it.

    deploy.py deploy PLUGIN=simulated [NAMESPACE=x] [RESOURCE_NAME=example.com/y]
    deploy.py undeploy PLUGIN=simulated [NAMESPACE=x]

        PLUGIN          a folder of deployments/
        NAMESPACE       where it runs (default: one of its own)
        RESOURCE_NAME   the resource, if the plugin has one that can be chosen
        REGISTRY        what stands before the image's name: registry.example.com/hw
        COMPONENTS      what is added: "events monitoring"

Every variable of the plugin can be given too, such as NUMBER_DEVICES=4 or DP_LOG_LEVEL=debug. The
plugin checks them before anything is applied. ``undeploy`` takes what ``deploy`` was given. The
overlay is written to dist/deploy/PLUGIN, to be looked at, or kept.

A namespace that was there before is neither changed nor deleted, and one in which anything else
runs is not deleted.
"""

import difflib
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import yaml

from deviceplugin._config.names import resource_name_problem
from deviceplugin.kit import files

ROOT: Final = Path(__file__).parents[1]
DEPLOYMENTS: Final = ROOT / "deployments"
TARGET: Final = ROOT / "dist" / "deploy"
OVERLAY: Final = "kustomization.yaml"
OWN: Final = ("PLUGIN", "NAMESPACE", "RESOURCE_NAME", "REGISTRY", "COMPONENTS")
MAKES: Final = frozenset({"ARGS", "PYTHON", "PYTEST", "VENV"})
"""Variables of the Makefile, which passes all that it is given."""
DNS_LABEL: Final = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")


class DeployError(Exception):
    """What is wrong with the command line, or with the cluster."""


def folders(place: str) -> list[str]:
    """Return the names of the kustomizations in a folder of ``deployments/``."""
    found = sorted(path.parent.name for path in DEPLOYMENTS.glob(f"{place}*/kustomization.yaml"))
    return [name for name in found if name != "base"]


def one_of(what: str, name: str, known: Collection[str]) -> str:
    """Return ``name`` if it is known; the error names the nearest that is."""
    if name in known:
        return name
    near = difflib.get_close_matches(name, known, 1)
    hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(sorted(known))}"
    raise DeployError(f"{what}: {name!r} is not known: {hint}")


def read(words: Sequence[str]) -> dict[str, str]:
    """Return the variables of a command line; an empty one is as if it was not given."""
    given = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals:
            raise DeployError(f"{word!r} is not NAME=VALUE")
        if value and name not in MAKES:
            given[name] = value
    if "PLUGIN" not in given:
        raise DeployError(f"say which plugin: PLUGIN=NAME, one of {', '.join(folders(''))}")
    one_of("PLUGIN", given["PLUGIN"], folders(""))
    for component in given.get("COMPONENTS", "").split():
        one_of("COMPONENTS", component, folders("components/"))
    if not DNS_LABEL.fullmatch(namespace(given)):
        raise DeployError(f"NAMESPACE: {namespace(given)!r} is not a name of a namespace")
    return given


def label(given: Mapping[str, str]) -> str:
    """Return what the label app.kubernetes.io/name of the plugin's objects is."""
    return f"{given['PLUGIN']}-device-plugin"


def namespace(given: Mapping[str, str]) -> str:
    """Return the namespace to deploy to."""
    return given.get("NAMESPACE", label(given))


def variables(given: Mapping[str, str]) -> dict[str, str]:
    """Return the variables for the plugin's container, which the plugin itself has checked."""
    own = {name: value for name, value in given.items() if name not in OWN}
    if not own and "RESOURCE_NAME" not in given:
        return own
    known = known_variables(given["PLUGIN"])
    if resource := given.get("RESOURCE_NAME"):
        names = [name for name in ("RESOURCE_NAME", "DP_RESOURCE") if name in known]
        if not names:
            raise DeployError(
                f"RESOURCE_NAME: the plugin {given['PLUGIN']} names its resources by itself: "
                f"see plugins/{given['PLUGIN']}/README.md"
            )
        if problem := resource_name_problem(resource):
            raise DeployError(f"RESOURCE_NAME: {resource!r}: {problem}")
        own[names[0]] = resource
    for name in own:
        one_of("variable", name, {*OWN, *known})
    ask(given["PLUGIN"], "--print-config", environment=own)
    return own


@cache
def known_variables(plugin: str) -> set[str]:
    """Return the variables that a plugin reads."""
    settings = json.loads(ask(plugin, "--print-config"))
    named = re.findall(r"also ([A-Z_]+) in the", " ".join(ask(plugin, "--help").split()))
    return {*named, *("DP_" + key.upper().replace("-", "_") for key in settings)}


def ask(plugin: str, option: str, environment: Mapping[str, str] | None = None) -> str:
    """Return what a plugin prints; the error is its message."""
    program = Path(sys.executable).with_name(f"{plugin}-device-plugin")
    done = subprocess.run(
        [program, option], env=environment or {}, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise DeployError(done.stderr.strip())
    return done.stdout


@contextmanager
def written(
    given: Mapping[str, str], own: Mapping[str, str], *, with_namespace: bool
) -> Iterator[Path]:
    """Write the overlay, and yield a copy of it that nobody changes who deploys meanwhile."""
    text = overlay(given, own, with_namespace=with_namespace)
    files.write(TARGET / given["PLUGIN"] / OVERLAY, text, durable=False)
    with TemporaryDirectory(prefix=f".{given['PLUGIN']}-", dir=TARGET) as folder:
        files.write(Path(folder, OVERLAY), text, durable=False)
        yield Path(folder)


def overlay(given: Mapping[str, str], own: Mapping[str, str], *, with_namespace: bool) -> str:
    """Return the kustomization for a folder in ``TARGET``, with the plugin's ``own`` variables."""
    deployments = os.path.relpath(DEPLOYMENTS, TARGET / given["PLUGIN"])
    patches = []
    if own:
        env = [{"name": name, "value": value} for name, value in own.items()]
        pod = {"containers": [{"name": "device-plugin", "env": env}]}
        patches.append(patch("apps/v1", "DaemonSet", spec={"template": {"spec": pod}}))
    if not with_namespace:
        patches.append(patch("v1", "Namespace", **{"$patch": "delete"}))
    components = given.get("COMPONENTS", "").split()
    found: dict[str, object] = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "namespace": namespace(given),
        "resources": [f"{deployments}/{given['PLUGIN']}"],
        "components": [f"{deployments}/components/{name}" for name in components],
        "patches": patches,
    }
    if registry := given.get("REGISTRY"):
        found["images"] = [{"name": label(given), "newName": f"{registry}/{label(given)}"}]
    text: str = yaml.safe_dump(found, sort_keys=False)
    return text


def patch(version: str, kind: str, **fields: object) -> dict[str, object]:
    """Return a patch of the objects of a kind, of which the overlay has one."""
    content = {"apiVersion": version, "kind": kind, "metadata": {"name": "any"}, **fields}
    return {"target": {"kind": kind}, "patch": yaml.safe_dump(content, sort_keys=False)}


def kubectl(*words: str) -> str:
    """Return what kubectl prints; what it complains about is seen."""
    program = shutil.which("kubectl")
    if program is None:
        raise DeployError("kubectl is not installed")
    done = subprocess.run([program, *words], stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise DeployError(f"kubectl {words[0]} failed, see above")
    return done.stdout


def deploy(given: Mapping[str, str], own: Mapping[str, str]) -> None:
    """Apply the plugin's manifests."""
    there = kubectl("get", "namespace", namespace(given), "--ignore-not-found", "--output=name")
    keep = bool(there) and not is_ours(given)
    with written(given, own, with_namespace=not keep) as folder:
        if keep:
            print(f"namespace {namespace(given)} is there already: left as it is")
        print(kubectl("apply", f"--kustomize={folder}"), end="")
    print(f"\nkubectl --namespace {namespace(given)} rollout status daemonset/{label(given)}")


def undeploy(given: Mapping[str, str], own: Mapping[str, str]) -> None:
    """Delete what :func:`deploy` applied."""
    delete_it = is_ours(given) and not (used := others(given))
    with written(given, own, with_namespace=delete_it) as folder:
        print(kubectl("delete", "--ignore-not-found", f"--kustomize={folder}"), end="")
    if not delete_it:
        why = f"it has {used.split()[0]}" if is_ours(given) else "it was not made by make deploy"
        print(f"namespace {namespace(given)} is left: {why}")


def is_ours(given: Mapping[str, str]) -> bool:
    """Return whether the namespace is there, and was made for this plugin."""
    selector = f"--selector=app.kubernetes.io/name={label(given)}"
    found = kubectl("get", "namespaces", selector, "--output=name").split()
    return f"namespace/{namespace(given)}" in found


def others(given: Mapping[str, str]) -> str:
    """Return the names of what runs in the namespace besides the plugin."""
    selector = f"--selector=app.kubernetes.io/name!={label(given)}"
    where = f"--namespace={namespace(given)}"
    return kubectl("get", "all", where, selector, "--output=name", "--ignore-not-found")


def main(argv: Sequence[str]) -> int:
    """See the module; return 2 for a wrong command line, and 1 where the cluster refuses."""
    verbs = {"deploy": deploy, "undeploy": undeploy}
    if not argv or argv[0] not in verbs:
        print(__doc__, file=sys.stderr)
        return 2
    status = 2
    try:
        given = read(argv[1:])
        own = variables(given)
        status = 1
        verbs[argv[0]](given, own)
    except DeployError as error:
        print(f"{argv[0]}: {error}", file=sys.stderr)
        return status
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
