"""Plugins' pods as the API server has them, and a kubectl that answers for them from a table."""

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cluster.scripted_api import Answer, Asked
from deviceplugin.tools._node_devices import API as DRA
from deviceplugin_cli.diagnosis._pods import SELECTOR
from fleets.objects import NODES, NONE, OBJECTS, PODS, node, page

Object = dict[str, Any]
DAEMON_SETS = "/apis/apps/v1/daemonsets"
RUNNING: Object = {"name": "device-plugin", "state": {"running": {}}}


def plugin_pod(name: str, where: str = "n1", container: Object = RUNNING, **status: Any) -> Object:
    """Return a pod in the namespace ``gpu``; its container's status, and more of its own."""
    spec = {"name": "device-plugin", "image": "gpu:1", "ports": [{"name": "http"}]}
    ready = str("running" in container["state"])
    return {
        "metadata": {
            "name": name,
            "namespace": "gpu",
            "uid": f"uid-{name}",
            "labels": {"app.kubernetes.io/name": "gpu-device-plugin"},
        },
        "spec": {"nodeName": where, "containers": [{"name": "events"}, spec]},
        "status": {
            "phase": "Running",
            "containerStatuses": [container],
            "conditions": [{"type": "Ready", "status": ready}],
            **status,
        },
    }


def daemon_set(wanted: int, there: int) -> Object:
    key, _, value = SELECTOR.partition("=")
    return {
        "metadata": {"name": "gpu-device-plugin", "namespace": "gpu", "uid": "uid-ds"},
        "spec": {"template": {"metadata": {"labels": {key: value}}}},
        "status": {"desiredNumberScheduled": wanted, "currentNumberScheduled": there},
    }


def warning_event(message: str, reason: str = "Failed", kind: str = "Warning") -> Object:
    return {"type": kind, "reason": reason, "message": message, "lastTimestamp": "2026-01-01"}


@dataclass
class Api:
    """What an API server has, or answers when it is asked for a list."""

    nodes: Sequence[Object] | Answer = (node("n1", gpu=(8, 8)),)
    pods: Sequence[Object] | Answer = ()
    daemon_sets: Sequence[Object] | Answer = ()
    events: Sequence[Object] | Answer = ()
    objects: Sequence[Object] | Answer = NONE
    slices: Sequence[Object] | Answer = NONE

    def __call__(self, asked: Asked) -> Answer:
        lists = {NODES: self.nodes, DAEMON_SETS: self.daemon_sets, OBJECTS: self.objects}
        lists |= {
            f"{DRA}/resourceslices": self.slices,
            PODS: self.pods,
            "/api/v1/namespaces/gpu/pods": self.pods,
        }
        found = self.events if asked.path.endswith("/events") else lists.get(asked.path, NONE)
        if isinstance(found, Answer):
            return found
        if asked.path.endswith("/events"):
            return page(found)
        terms = dict(one.split("=", 1) for one in asked.query.get("fieldSelector", "=").split(","))
        name = terms.get("metadata.name") or terms.get("spec.nodeName")
        return page([one for one in found if name in {None, *_names(one)}])


def _names(one: Object) -> set[str]:
    return {one["metadata"]["name"], one.get("spec", {}).get("nodeName", "")}


def finding(verdict: str, check: str, found: str, do: str = "mend it.") -> Object:
    words = {"looked_at": "/x", "found": found, "means": "no devices.", "do": do}
    return {"check": check, "verdict": verdict, **words}


def doctor(*findings: Object) -> str:
    """Return what the doctor prints in a pod."""
    return json.dumps({"format": 1, "findings": [*findings, finding("ok", "clock", "right")]})


def devices(resource: str = "example.com/gpu", problem: str = "", **reasons: str) -> str:
    """Return a plugin's ``/devices``: each device with why it is unhealthy, or an empty string."""
    listed = [
        {"id": name, "healthy": not reason, "reason": reason, "since": "2026-01-01"}
        for name, reason in reasons.items()
    ]
    return json.dumps({"resources": [{"name": resource, "problem": problem, "devices": listed}]})


@dataclass(frozen=True)
class Says:
    """What a command prints, and how it ends."""

    out: str = ""
    error: str = ""
    status: int = 0
    seconds: float = 0


def kubectl(folder: Path, answers: Mapping[str, Says | str]) -> str:
    """Write a ``kubectl``, and return the command that runs it.

    It answers by the first of the patterns of a shell that its words match, and notes the words in
    the file ``asked``.
    """
    cases = []
    for number, (pattern, said) in enumerate(answers.items()):
        one = Says(said) if isinstance(said, str) else said
        file = folder / f"answer-{number}"
        file.write_text(one.out)
        wait = f"sleep {one.seconds}; " if one.seconds else ""
        ends = f"echo {shlex.quote(one.error)} >&2; exit {one.status}"
        cases.append(f"{pattern}) {wait}cat {file}; {ends};;")
    script = folder / "kubectl"
    lines = ["#!/bin/sh", f'echo "$*" >> {folder}/asked', 'case "$*" in', *cases, "esac", "exit 3"]
    script.write_text("\n".join(lines))
    script.chmod(0o755)
    return str(script)
