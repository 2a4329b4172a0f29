#!/usr/bin/env python3
"""Build a plugin's image, bring it to the nodes of a cluster, deploy the plugin and wait for it.

    build/to_cluster.py PLUGIN [FOLDER] [--user USER] [--dry-run]
    build/to_cluster.py PLUGIN [FOLDER] --registry REGISTRY

The cluster is the one that kubectl is set up for. What kind it is shows in its nodes: clusters.py
says by what, and how an image comes there. Every command is printed before it runs. It needs
Python 3.11, kubectl, and one of buildah, podman, docker and nerdctl. The exit status is 2 for a
wrong command line, and 1 if a step fails.
"""

import sys

if sys.version_info < (3, 11):  # noqa: UP036  # the first thing that somebody runs
    sys.exit("to_cluster.py: it needs Python 3.11 or newer: python3.11 build/to_cluster.py PLUGIN")

import argparse
import difflib
import json
import os
import platform
import shlex
import shutil
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import images
from clusters import Kind, Node, StepError

ROOT: Final = images.ROOT
TARGET: Final = ROOT / "dist" / "to_cluster"
COMPONENTS: Final = ROOT / "deployments" / "components"
ARCHITECTURES: Final = {"x86_64": "amd64", "aarch64": "arm64", "arm64": "arm64"}
"""What Kubernetes calls that of this machine."""
ROLL_OUT: Final = "180s"
PATIENCE: Final = 12.0
"""Seconds in which a node lists new devices: its kubelet reports them every 10 s."""


def run(words: Sequence[str], *, dry: bool, file: Path | None = None) -> None:
    """Print a command, and run it unless ``dry``, with ``file`` as its input."""
    shown = shlex.join(words) + (f" < {written(file)}" if file else "")
    print(f"+ {shown}", flush=True)
    if dry:
        return
    try:
        with (file or Path(os.devnull)).open("rb") as content:
            done = subprocess.run(words, stdin=content, cwd=ROOT, check=False)
    except OSError as error:
        raise StepError(f"{error.filename}: {error.strerror}") from None
    if done.returncode:
        hint = "; where ssh or sudo ask for a password, import it there yourself" if file else ""
        raise StepError(f"`{shown}` ended with status {done.returncode}, see above{hint}")


def written(path: Path) -> str:
    """Return a path as it is written in the root of the checkout."""
    return os.path.relpath(path, ROOT) if path.is_relative_to(ROOT) else str(path)


def ask(*words: str) -> list[Mapping[str, Any]]:
    """Return the objects that kubectl gets."""
    if shutil.which("kubectl") is None:
        raise StepError("kubectl is not installed")
    command = ["kubectl", "get", *words, "--output=json", "--request-timeout=30s"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        said = done.stderr.strip().splitlines() or ["no reason given"]
        raise StepError(f"kubectl get {words[0]}: {said[-1]}")
    found: Mapping[str, Any] = json.loads(done.stdout or '{"items": []}')
    return list(found.get("items", [found]))


def check_programs(kind: Kind, nodes: Sequence[Node]) -> None:
    """Raise StepError if what imports images is not installed here: a build takes minutes."""
    program = kind.command.split()[0] if "FILE" in kind.command else ""
    if not program and not all(node.is_here for node in nodes):
        program = "ssh"
    if program and shutil.which(program) is None:
        raise StepError(f"{program} is not installed: it brings the image to the nodes")


def usable_nodes() -> list[Node]:
    """Return the nodes that images are for; others are named."""
    nodes = [Node.of(found) for found in ask("nodes")]
    usable = [node for node in nodes if node.architecture in ARCHITECTURES.values()]
    for node in nodes:
        if node not in usable:
            print(f"node {node.name} is left out: no image is for {node.architecture}")
    if not usable:
        raise StepError("the cluster has no node of amd64 or arm64")
    return usable


def build(
    made: images.Image, nodes: Sequence[Node], options: argparse.Namespace
) -> dict[str, Path]:
    """Build the image for each architecture of the nodes, and return the archives."""
    if not (tool := images.tool()):
        raise StepError(f"none of {', '.join(images.TOOLS)} is installed and works")
    files = {}
    for one in sorted({node.architecture for node in nodes}):
        wanted = "" if one == ARCHITECTURES.get(platform.machine()) else f"linux/{one}"
        path = images.archive_of(made, wanted)
        print(
            f"+ build {options.prefix}{made.title} for {one} by {tool}: {written(path)}", flush=True
        )
        if not options.dry_run:
            try:
                images.write(tool, made, options, wanted, options.more)
            except subprocess.CalledProcessError as error:
                status = f"{tool} ended with status {error.returncode}, see above"
                raise StepError(f"{status}; without a registry, see build/README.md") from None
        files[one] = path
    if options.registry:
        if len(files) > 1:
            raise StepError("nodes of amd64 and arm64 need an image for both: see build/README.md")
        run([tool, "push", images.full_name(made, options.prefix)], dry=options.dry_run)
    return files


def bring(
    files: Mapping[str, Path], nodes: Sequence[Node], kind: Kind, options: argparse.Namespace
) -> None:
    """Import the archives where the nodes look for images: here, or on each node."""
    words = kind.command.split()
    if "FILE" in kind.command:
        for file in files.values():
            run([written(file) if word == "FILE" else word for word in words], dry=options.dry_run)
        return
    for node in nodes:
        host = f"{options.user}@{node.address}" if options.user else node.address
        is_root = os.geteuid() == 0 if node.is_here else options.user == "root"
        own = words[1:] if is_root else words
        own = own if node.is_here else ["ssh", host, *own]
        run(own, dry=options.dry_run, file=files[node.architecture])


def kustomization(folder: Path, made: images.Image, kind: Kind | None, prefix: str) -> Path:
    """Return the folder to apply: FOLDER, or one that adds what the cluster needs."""
    added: dict[str, Any] = {}
    target = TARGET / made.name
    if kind is not None and kind.component:
        added["components"] = [os.path.relpath(COMPONENTS / kind.component, target)]
    if prefix:
        added["images"] = [{"name": made.title, "newName": f"{prefix}{made.title}"}]
    if not added:
        return folder
    target.mkdir(parents=True, exist_ok=True)
    content = {"resources": [os.path.relpath(folder, target)], **added}
    (target / "kustomization.yaml").write_text(json.dumps(content, indent=1), encoding="utf-8")
    return target


def deploy(folder: Path, title: str, *, dry: bool) -> None:
    """Apply a kustomization, and wait until its pods are ready, with the new image."""
    place = f"--kustomize={written(folder)}"
    before = [] if dry else ask(place, "--ignore-not-found")
    run(["kubectl", "apply", place], dry=dry)
    there = {one["metadata"]["uid"] for one in before}
    for one in [] if dry else ask(place):
        metadata = one["metadata"]
        where = [f"--namespace={metadata.get('namespace')}", f"daemonset/{metadata['name']}"]
        if one["kind"] != "DaemonSet":
            continue
        if metadata["uid"] in there:  # its pods have the image of before under the same name
            run(["kubectl", "rollout", "restart", *where], dry=dry)
        try:
            run(["kubectl", "rollout", "status", *where, f"--timeout={ROLL_OUT}"], dry=dry)
        except StepError as error:
            raise StepError(f"{error}\n{why_not(metadata['namespace'])}") from None
        print(f"what it finds: kubectl exec {shlex.join(where)} -- {title} --once")


def why_not(namespace: str) -> str:
    """Return why containers of a namespace do not run, a line for each."""
    lines = []
    for pod in ask("pods", f"--namespace={namespace}"):
        for status in pod.get("status", {}).get("containerStatuses", ()):
            state = status["state"].get("waiting") or status["state"].get("terminated") or {}
            if state:
                where = f"{pod['metadata']['name']} on {pod['spec'].get('nodeName')}"
                lines.append(f"  {where}: {state.get('reason')}: {state.get('message', '')}")
    return "\n".join(lines) or f"see: kubectl --namespace {namespace} describe pods"


def devices() -> dict[str, dict[str, str]]:
    """Return which devices the nodes can give to pods."""
    return {
        node["metadata"]["name"]: {
            name: count
            for name, count in node.get("status", {}).get("allocatable", {}).items()
            if "/" in name
        }
        for node in ask("nodes")
    }


def show(before: Mapping[str, Mapping[str, str]]) -> None:
    """Print what each node has, once that is more than before."""
    end = time.monotonic() + PATIENCE
    while (now := devices()) == before and time.monotonic() < end:
        time.sleep(1)
    print(f"\n{'NODE':20} {'RESOURCE':30} ALLOCATABLE")
    for node, found in now.items():
        for name, count in found.items() or [("-", "-")]:
            print(f"{node:20} {name:30} {count}")


def a_plugin(text: str) -> str:
    """Return the name of a plugin."""
    known = images.plugins()
    if text in known:
        return text
    near = difflib.get_close_matches(text, known, 1)
    hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(known)}"
    raise argparse.ArgumentTypeError(f"{text!r} is not a plugin: {hint}")


def read(argv: Sequence[str]) -> argparse.Namespace:
    """Return what the command line says."""
    own, more = images.split(argv)
    parser = argparse.ArgumentParser("to_cluster.py", description=(__doc__ or "").split("\n")[0])
    add = parser.add_argument
    add("plugin", type=a_plugin, metavar="PLUGIN", help="a folder of deployments/")
    add("folder", type=Path, nargs="?", metavar="FOLDER", help="a kustomization of your own")
    add("--user", default="", help="log in to nodes as this user, by ssh")
    add("--registry", default="", help="push the image there: registry.example.com/hw")
    add("--dry-run", action="store_true", help="print what would be done")
    images.add_bases(parser)
    options = parser.parse_args(own)
    options.folder = (options.folder or ROOT / "deployments" / options.plugin).resolve()
    if not (options.folder / "kustomization.yaml").is_file():
        parser.error(f"{options.folder}: there is no kustomization.yaml in it")
    if "://" in options.registry:
        parser.error(f"--registry {options.registry}: write it as registry.example.com/hw")
    options.more, options.registry = more, options.registry.rstrip("/")
    options.prefix = f"{options.registry}/" if options.registry else ""
    return options


def main(argv: Sequence[str]) -> int:
    """See the module."""
    options = read(argv)
    made = images.image(options.plugin)
    try:
        nodes, before = usable_nodes(), devices()
        kind = None if options.registry else nodes[0].kind()
        if kind is not None:
            check_programs(kind, nodes)
            options.prefix = kind.prefix
        files = build(made, nodes, options)
        if kind is not None:
            bring(files, nodes, kind, options)
        folder = kustomization(options.folder, made, kind, options.prefix)
        deploy(folder, made.title, dry=options.dry_run)
        if not options.dry_run:
            show(before)
    except (OSError, StepError, ValueError) as error:
        print(f"to_cluster.py: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
