"""Containers of the two plugins: their flags, and their file, for all nodes or one for each."""

import re
from typing import Any, Final

import deviceplugin as dp
from deviceplugin.kit.migration import LOGGING, LOGGING_SWITCHES, Migration, Workload, flags
from deviceplugin_rdma.migrate.peers import PEERS, Peer

_VARIABLE: Final = re.compile(r"\$\(([-A-Za-z0-9_.]+)\)")
_NODE_NAME: Final = "spec.nodeName"
_PER_NODE: Final = "config-per-node"
_NOBODY: Final[dict[str, Any]] = {"resourceList": []}


def migrate(workload: Workload) -> Migration | None:
    """Return what becomes of a container of one of the two plugins; None for anything else."""
    peer = next((one for one in PEERS if one.image.search(workload.name)), None)
    if workload.values is not None or peer is None:
        return None
    result = peer.migration()
    path, prefix = _flags(workload, peer, result)
    for name in workload.variables:
        workload.drop_variable(name, "theirs does not read it")
    own = {"resource-prefix": prefix} if prefix else {}
    files = _of_nodes(workload, path) if _VARIABLE.search(path) else {}
    if files and workload.configuration is None:
        _per_node(workload, peer, files, own, result)
    else:
        file = workload.file(path, f"its configuration {path}")
        result.configuration = {**own, **peer.read(file, prefix)}
    return result


def _flags(workload: Workload, peer: Peer, result: Migration) -> tuple[str, str]:
    """Return the path of its file, and the domain of its resources if it has another."""
    path, prefix = peer.file, ""
    known, switches = (*peer.flags, *LOGGING), ("use-cdi", *LOGGING_SWITCHES)
    for name, given in flags(workload, known, switches):
        if name == "config-file":
            path = str(given.value)
        elif name == "resource-prefix":
            prefix = str(given.value)
        elif name == "use-cdi" and given.value != "false":
            result.differs("--use-cdi", "not supported: containers get the device nodes")
        elif given.value != "false":
            result.differs(f"--{name}", f"{given.value}; log-level is the setting for logs here")
    return path, prefix


def _of_nodes(workload: Workload, path: str) -> dict[str, str]:
    """Return the paths of the files that ``path`` names on different nodes, by the nodes.

    Raises:
        ConfigError: It is not the name of the node that chooses the file.
    """
    (name, *more) = _VARIABLE.findall(path)
    place = (*workload.root, "env")
    env = workload.account.get(place)
    listed = env if isinstance(env, list) else []
    found = [one for one in listed if isinstance(one, dict) and one.get("name") == name]
    field = _within(found[-1] if found else {}, "valueFrom", "fieldRef", "fieldPath")
    if more or field != _NODE_NAME:
        raise dp.ConfigError(
            f"{workload.place}: args: {path!r}: its file is not chosen by {_NODE_NAME} alone: "
            "render the manifest for one node, or give the file with --config"
        )
    workload.account.take((*place, listed.index(found[-1])))
    head, tail = (re.escape(part) for part in path.split(f"$({name})"))
    known = ((re.fullmatch(f"{head}([^/]+){tail}", one), one) for one in workload.files)
    return {match[1]: one for match, one in known if match}


def _within(found: Any, *path: str) -> Any:
    for key in path:
        found = found.get(key) if isinstance(found, dict) else None
    return found


def _per_node(
    workload: Workload, peer: Peer, files: dict[str, str], own: dict[str, Any], result: Migration
) -> None:
    """Put the file of each node into the component that has one for each."""
    import yaml

    texts: dict[str, str] = {}
    for node, path in sorted(files.items()):
        found = {**own, **peer.read(workload.file(path, path), own.get("resource-prefix", ""))}
        texts[node] = yaml.safe_dump(found, sort_keys=False, width=90)
    for path, file in workload.files.items():
        if path not in files.values():
            workload.account.drop(file.path, "is not the file of a node")
    result.configuration = _NOBODY
    result.components.append(_PER_NODE)
    result.config_maps[_PER_NODE] = texts
    result.differs(
        "configuration",
        f"one for each of {len(texts)} nodes, by the component {_PER_NODE}; other nodes offer "
        "nothing",
    )
    if _within(workload.account.get((workload.root[0], "metadata")), "ownerReferences"):
        result.differs(
            "operator",
            "it makes its DaemonSet again when that is deleted, and what it changes in these files "
            "later does not come here: plugins/rdma/docs/with-sriov-operator.md keeps its plugin "
            "off nodes, and has an overlay that reads its own ConfigMap",
        )
