"""A kubectl for the tests of e2e's cluster: a node, pods and one DaemonSet, in a JSON file.

It stands at the edge, where a real cluster would be. It knows the words that the suite uses and no
others, schedules by counting, and runs what pods do to files of the node in a folder here.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(os.environ["FAKE_CLUSTER"])
RESOURCE = "example.com/gopher"
State = dict[str, Any]


def load() -> State:
    path = HERE / "state.json"
    empty: State = {"namespace": "", "pods": {}, "applied": []}
    return json.loads(path.read_text()) if path.exists() else empty


def devices(state: State) -> int:
    folder = HERE / "tmp" / str(state["namespace"] or "-")
    return len([*folder.iterdir()]) if folder.is_dir() else 0


def option(words: list[str], name: str) -> str:
    return next((w.partition("=")[2] for w in words if w.startswith(f"--{name}=")), "")


def apply(state: State, words: list[str]) -> str:
    if folder := option(words, "kustomize"):
        from kustomize import render  # late: it takes longer than all the rest

        manifests = render(Path(folder))
        (space,) = (one["metadata"]["name"] for one in manifests if one["kind"] == "Namespace")
        state["namespace"] = space
        state["applied"].append(manifests)
        state["pods"]["plugin-1"] = {"status": {"phase": "Running"}, "limit": 0}
        return ""
    pod = json.load(sys.stdin)
    (container,) = pod["spec"]["containers"]
    limit = int(container["resources"]["limits"].get(RESOURCE, "0"))
    taken = sum(one["limit"] for one in state["pods"].values())
    status: State = {"phase": "Running" if "sleep" in container["command"][2] else "Succeeded"}
    if taken + limit > devices(state):
        message = f"0/1 nodes are available: 1 Insufficient {RESOURCE}."
        condition = {"type": "PodScheduled", "reason": "Unschedulable", "message": message}
        status, limit = {"phase": "Pending", "conditions": [condition]}, 0
    elif not limit:
        shell = container["command"][2].replace("/host", str(HERE / "tmp"))
        subprocess.run(["sh", "-c", shell], check=True)
    state["pods"][pod["metadata"]["name"]] = {"status": status, "limit": limit}
    return ""


def get(state: State, words: list[str]) -> str:
    kind, *names = [word for word in words if not word.startswith("--")]
    count = {RESOURCE: str(devices(state))}
    node = {"metadata": {"name": "node-1"}, "status": {"capacity": count, "allocatable": count}}
    if kind == "nodes":
        return json.dumps({"items": [node]})
    if kind == "node":
        return json.dumps(node)
    if kind == "pods":
        return json.dumps({"items": [{"metadata": {"name": "plugin-1"}}]})
    if kind == "pod":
        return json.dumps(state["pods"][names[0]])
    if kind == "namespace":
        return f"{names[0]} Active\n" if names[0] == state["namespace"] else ""
    return f"{kind}\n"


def delete(state: State, words: list[str]) -> str:
    if words[0] == "pod":
        if words[1] != "plugin-1":
            del state["pods"][words[1]]
    else:
        state |= {"namespace": "", "pods": {}}
    return ""


def show(_state: State, words: list[str]) -> str:
    import yaml

    from kustomize import render

    return str(yaml.safe_dump_all(render(Path(words[0]))))


COMMANDS: dict[str, Callable[[State, list[str]], str]] = {
    "apply": apply,
    "get": get,
    "delete": delete,
    "kustomize": show,
    "logs": lambda _, words: (
        "my gophers are gary,gina\n"
        if words[0] == "two-gophers"
        else "Gopher=gary\n\n/dev/null\n\noverlay / overlay rw 0 0\n\n"
    ),
    "exec": lambda *_: f'deviceplugin_devices{{resource="{RESOURCE}"}} 2.0\n',
    "rollout": lambda *_: "rolled out\n",
    "describe": lambda *_: "described\n",
}


def main(words: list[str]) -> str:
    state = load()
    with (HERE / "calls").open("a") as calls:
        calls.write(" ".join(words) + "\n")
    command, *rest = words
    if command == os.environ.get("FAKE_BROKEN"):
        raise SystemExit(f"error: {command} does not work")
    if command not in COMMANDS:
        raise SystemExit(f"error: unknown command {command}")
    said = COMMANDS[command](state, rest)
    (HERE / "state.json").write_text(json.dumps(state))
    return said


if __name__ == "__main__":
    sys.stdout.write(main(sys.argv[1:]))
