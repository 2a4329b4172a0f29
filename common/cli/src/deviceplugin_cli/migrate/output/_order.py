"""The order in which nodes change hands, as commands: no node is without its devices.

A kubelet takes the latest registration of a resource, so ours starts beside the peer and takes its
resources over, and only then the peer leaves the node. Two labels of nodes say who runs there. The
peer selects nodes by one, with a patch that restarts none of its pods; ours avoids the other.
"""

import json
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from deviceplugin_cli.migrate.output._deployments import Deployment, Image
from deviceplugin_cli.migrate.output._peers import Peer, peer_of

BEFORE: Final = "before.json"
_OPERATORS: Final = "deviceplugin-operator"
"""The namespace in which our operator deploys."""
_KEPT: Final = " Pods keep their devices."
_WAIT: Final = "sleep 10"
"""A DaemonSet counts the nodes that it is for a moment after their labels have changed."""


@dataclass(frozen=True)
class Move:
    """The way of one peer's nodes to us, in labels."""

    deployments: Sequence[Deployment]
    """Ours that take its place."""
    images: Sequence[Image]
    by_selector: bool
    """Whether ours selects nodes by its label, as objects do; otherwise it avoids that label."""
    peer: Peer = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "peer", peer_of(self.deployments[0].made))

    @property
    def drains(self) -> bool:
        """Whether pods have to leave a node before, because its devices get other ids."""
        return not self.deployments[0].migration.keeps_ids

    @property
    def waits(self) -> str:
        """What is added to ``kubectl label`` at first."""
        stays = f"{self.deployments[0].stays}=keep"
        ours = [] if self.by_selector else [f"{self.deployments[0].waits}=wait"]
        keeper = self.peer.keeper
        return " ".join([*([] if keeper and keeper.leave else [stays]), *ours])

    @property
    def ours(self) -> str:
        """Starts ours on a node."""
        label = self.deployments[0].waits
        return f"{label}=run" if self.by_selector else f"{label}-"

    @property
    def away(self) -> str:
        """Stops ours on a node."""
        label = self.deployments[0].waits
        return f"{label}-" if self.by_selector else f"{label}=wait"

    @property
    def leaves(self) -> str:
        """Takes the peer off a node."""
        keeper = self.peer.keeper
        return keeper.leave if keeper and keeper.leave else f"{self.deployments[0].stays}-"

    @property
    def stays(self) -> str:
        """Brings the peer back to a node."""
        keeper = self.peer.keeper
        return keeper.stay if keeper and keeper.stay else f"{self.deployments[0].stays}=keep"

    @property
    def patch(self) -> str:
        """The peer's patch: its nodes by label, and no pod is restarted because of it."""
        selector = {self.deployments[0].stays: "keep"}
        spec = {
            "updateStrategy": {"type": "OnDelete", "rollingUpdate": None},
            "template": {"spec": {"nodeSelector": selector}},
        }
        return json.dumps({"spec": spec}, separators=(",", ":"))


def there(moves: Sequence[Move], apply: Sequence[str], name: str) -> Iterator[str]:
    """Yield lines: sentences, and commands, which are indented.

    ``apply`` deploys the result, and ``name`` is that of the input.
    """
    drains = any(move.drains for move in moves)
    yield (
        "In this order no node is without its devices: ours starts beside the other plugin and "
        f"takes over, then the other leaves.{'' if drains else _KEPT}"
    )
    yield "1. The image. --image names yours; a node has to be able to pull it:"
    yield "    NODE=the-first-node"
    for move in moves:
        yield from _pulled(move)
    yield "2. What there is now:"
    yield f"    deviceplugin migrate verify --save {BEFORE}"
    yield "3. The other plugin stays where it is, and ours waits. No pod is restarted:"
    for move in moves:
        yield from _held(move)
    yield from (f"    {one}" for one in apply)
    yield "4. The first node:"
    yield from _moved(moves, "node $NODE")
    yield f"    deviceplugin migrate verify {BEFORE} --node $NODE"
    if drains:
        yield "5. Each other node like the first."
    else:
        yield "5. All others, or groups of them by --selector:"
        yield from _moved(moves, "nodes --all")
    yield f"    deviceplugin migrate verify {BEFORE}"
    yield f"6. The other plugin goes.{_needed(moves)}"
    for move in moves:
        yield from _removed(move)
    yield (
        f"The way back: deviceplugin migrate back {name}. If a kubelet restarts while both are on "
        "its node, and verify then finds 0 devices, delete our pod there."
    )


def back(moves: Sequence[Move], delete: Sequence[str], files: Sequence[str]) -> Iterator[str]:
    """Yield the lines of the way back. ``delete`` removes the result."""
    yield (
        "The way back. For some seconds a node has no devices to give: kubelets up to 1.36 drop a "
        "resource when one of two plugins leaves, and the other plugin does not notice, as ours "
        "does. So ours leaves first, while the node takes no new pods."
        f"{'' if any(move.drains for move in moves) else _KEPT}"
    )
    yield "1. What there is now:"
    yield f"    deviceplugin migrate verify --save {BEFORE}"
    yield "2. The other plugin is there, and on none of our nodes:"
    for move in moves:
        yield from _there_again(move, files)
    yield "3. Node by node:"
    yield "    NODE=the-first-node"
    yield "    kubectl cordon $NODE"
    for move in moves:
        yield from _moved_back(move)
    yield f"    deviceplugin migrate verify {BEFORE} --node $NODE"
    yield "    kubectl uncordon $NODE"
    yield "4. When all nodes are through, ours goes, and the labels:"
    yield from (f"    {one}" for one in delete)
    for move in moves:
        yield from _as_before(move)
    yield f"    deviceplugin migrate verify {BEFORE}"


def _there_again(move: Move, files: Sequence[str]) -> Iterator[str]:
    peer, keeper = move.peer, move.peer.keeper
    if keeper and keeper.leave:
        yield "(Its operator has it, unless it was switched off there.)"
        return
    if not peer.is_known:
        yield "    PEER=its-daemonset PEER_NAMESPACE=its-namespace"
    if keeper and keeper.stop:
        yield f"    {keeper.stop}"
    of_file = " ".join(f"-f {shlex.quote(one)}" for one in files)
    how = "as it was installed" if keeper or not of_file else f"kubectl apply {of_file}"
    yield f"(If it was removed, it is installed again first: {how}.)"
    yield f"    {peer.kubectl} patch daemonset {peer.daemon_set} --patch '{move.patch}'"


def _moved_back(move: Move) -> Iterator[str]:
    yield f"    kubectl label node $NODE --overwrite {move.away}"
    for one in move.deployments:
        where = _OPERATORS if move.by_selector else one.name
        yield (
            f"    kubectl --namespace {where} wait pod --for delete --timeout 1m "
            "--field-selector spec.nodeName=$NODE"
        )
    yield f"    kubectl label node $NODE --overwrite {move.stays}"
    yield f"    {_WAIT}"


def _as_before(move: Move) -> Iterator[str]:
    peer, keeper = move.peer, move.peer.keeper
    labels = f"{move.deployments[0].waits}-"
    if not (keeper and keeper.leave):
        patch = {
            "spec": {"template": {"spec": {"nodeSelector": {move.deployments[0].stays: None}}}}
        }
        words = json.dumps(patch, separators=(",", ":"))
        # Its strategy stays OnDelete: another would restart the pods that were made meanwhile.
        yield f"    {peer.kubectl} patch daemonset {peer.daemon_set} --patch '{words}'"
        labels = f"{labels} {move.deployments[0].stays}-"
    yield f"    kubectl label nodes --all {labels}"
    if keeper and keeper.start:
        yield f"    {keeper.start}"


def _pulled(move: Move) -> Iterator[str]:
    secrets = move.deployments[0].pod.get("imagePullSecrets")
    if secrets:
        yield (
            "(With the pull secrets of the other plugin, which the namespace "
            f"{move.deployments[0].name} needs too.)"
        )
    spec = {"nodeName": "NODE", **({"imagePullSecrets": secrets} if secrets else {})}
    words = json.dumps({"spec": spec}, separators=(",", ":"))
    words = words.replace("'", r"\u0027").replace("NODE", "'$NODE'", 1)  # in a shell's quotes
    kubectl = move.peer.kubectl if secrets else "kubectl"
    for image in dict.fromkeys(move.images):
        yield (
            f"    {kubectl} run device-plugin-image --rm --attach --restart Never "
            f"--image {shlex.quote(str(image))} --overrides '{words}' -- --version"
        )


def _held(move: Move) -> Iterator[str]:
    peer, keeper = move.peer, move.peer.keeper
    if not peer.is_known and not (keeper and keeper.leave):
        yield "    PEER=its-daemonset PEER_NAMESPACE=its-namespace"
    if keeper and keeper.what:
        yield f"({keeper.what})"
    if keeper and keeper.stop:
        yield f"    {keeper.stop}"
    label = f"kubectl label nodes --all --overwrite {move.waits}" if move.waits else ""
    if keeper and keeper.leave:
        yield from [f"    {label}"] if label else []
        return
    yield f"    {label} &&"
    yield f"    {peer.kubectl} patch daemonset {peer.daemon_set} --patch '{move.patch}'"


def _moved(moves: Sequence[Move], nodes: str) -> Iterator[str]:
    drains = any(move.drains for move in moves)
    if drains:
        yield "(Device ids change, so pods that hold devices leave the node first.)"
        yield "    kubectl drain $NODE --ignore-daemonsets --delete-emptydir-data"
    yield f"    kubectl label {nodes} --overwrite {' '.join(move.ours for move in moves)}"
    yield f"    {_WAIT}"
    for move in moves:
        yield from (f"    {_ready(move, one)}" for one in move.deployments)
    yield f"    kubectl label {nodes} --overwrite {' '.join(move.leaves for move in moves)}"
    yield f"    {_WAIT}"
    if drains:
        yield "    kubectl uncordon $NODE"


def _ready(move: Move, one: Deployment) -> str:
    if move.by_selector:
        return f"kubectl wait deviceplugin {object_name(one)} --for condition=Ready --timeout 5m"
    return f"kubectl --namespace {one.name} rollout status daemonset {one.name} --timeout 5m"


def object_name(one: Deployment) -> str:
    """Return the name of a ``DevicePlugin``."""
    return f"{one.migration.plugin}{one.suffix}"[:40].rstrip("-")


def _needed(moves: Sequence[Move]) -> str:
    told = [one for move in moves for one in move.deployments[0].migration.removed]
    return f" With it goes: {'; '.join(dict.fromkeys(told))}." if told else ""


def _removed(move: Move) -> Iterator[str]:
    peer, keeper = move.peer, move.peer.keeper
    if keeper and keeper.ends:
        yield from keeper.ends
    else:
        yield f"    {peer.kubectl} delete daemonset {peer.daemon_set}"
