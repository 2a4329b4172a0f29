"""Lists and health: the messages of ListAndWatch."""

from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Final

from deviceplugin.kit.log import few
from deviceplugin.proto.v1beta1 import HEALTHY, MAX_LIST_BYTES, UNHEALTHY
from deviceplugin.proto.v1beta1 import deviceplugin_pb2 as pb
from deviceplugin_testing.conformance import _kubelet
from deviceplugin_testing.conformance._check import FIRST_LANE, CheckGroup, Failed, NotApplicable
from deviceplugin_testing.conformance._node import PluginNode
from deviceplugin_testing.conformance._trial import Trial
from deviceplugin_testing.conformance.checks._observing import quiet

GROUP: Final = CheckGroup("lists", "Lists and health", lane=FIRST_LANE)

_MAX_ID: Final = 63


def _devices(trial: Trial) -> Iterator[pb.Device]:
    """Yield each device of each list that the current kubelet got."""
    for each in trial.node().lists:
        yield from each.devices


@GROUP.check(
    "prompt",
    "Sends its first list as soon as the stream opens",
    why="Until the first list the resource does not exist: pods are admitted without devices.",
)
def _prompt(trial: Trial) -> str:
    node = trial.first()
    accepted = _accepted(trial, node)
    lists = node.kubelet.lists(accepted[0].resource)
    if not lists:
        with _own_stream(node, accepted[0]) as stream:
            if not stream.wait(trial.limits.first_list):
                raise Failed(f"no list within {trial.limits.first_list:g} s {stream.error}")
            return f"sent after {stream.waited:.2f} s"
    took = max(0.0, lists[0].at - accepted[0].answered_at)
    if took > trial.limits.first_list:
        raise Failed(f"sent {took:.2f} s after the registration")
    return f"sent {took:.2f} s after the registration"


@GROUP.check(
    "complete",
    "Sends all of its devices in the first list",
    why="After a restart of the kubelet, pods whose devices are missing from it are rejected.",
)
def _complete(trial: Trial) -> str:
    lists = trial.once(quiet).lists
    first = set(lists[0].ids)
    late = {id_ for each in lists[1:] for id_ in each.ids} - first
    if late:
        raise Failed(f"{len(first)} devices at first; came later: {_some(late)}")
    return f"{len(first)} devices, and no more came later"


@GROUP.check(
    "no-repeats",
    "Sends a list only if something has changed",
    why="For each list, identical or not, the kubelet writes its checkpoint to the disk.",
)
def _no_repeats(trial: Trial) -> str:
    seen = trial.once(quiet)
    last: dict[object, frozenset[bytes]] = {}
    repeats = 0
    for each in seen.lists:
        content = frozenset(d.SerializeToString(deterministic=True) for d in each.devices)
        repeats += last.get(each.stream) == content
        last[each.stream] = content
    if repeats:
        raise Failed(f"sent {repeats} lists again unchanged within {seen.seconds:.0f} s")
    return f"{len(seen.lists)} lists within {seen.seconds:.0f} s, none twice"


@GROUP.check(
    "unique-ids",
    "Lists each id once",
    why="The kubelet counts an id with two healths twice, and allocates it once.",
)
def _unique_ids(trial: Trial) -> str:
    for each in trial.node().lists:
        twice = {id_ for id_, count in Counter(each.ids).items() if count > 1}
        if twice:
            raise Failed(f"listed more than once: {_some(twice)}")
    return "no id twice"


@GROUP.check(
    "id-length",
    f"Uses ids of 1 to {_MAX_ID} characters",
    why="The API requires it: longer ids do not fit into labels, and an empty one names nothing.",
)
def _id_length(trial: Trial) -> str:
    ids = {device.ID for device in _devices(trial)}
    bad = {id_ for id_ in ids if not 1 <= len(id_) <= _MAX_ID}
    if bad:
        raise Failed(f"ids of {', '.join(str(len(id_)) for id_ in sorted(bad)[:3])} characters")
    return f"at most {max(map(len, ids), default=0)} characters"


@GROUP.check(
    "health-words",
    f"Spells health exactly {HEALTHY} or {UNHEALTHY}",
    why="The kubelet treats every other word as unhealthy, even healthy and OK.",
)
def _health_words(trial: Trial) -> str:
    words = Counter(device.health for device in _devices(trial))
    odd = set(words) - {HEALTHY, UNHEALTHY}
    if odd:
        raise Failed(f"called health {_some({repr(word) for word in odd})}")
    last = trial.node()
    return f"{len(last.healthy)} healthy, {len(last.unhealthy)} unhealthy"


@GROUP.check(
    "topology",
    "Omits the topology of devices without a known NUMA node",
    why="A topology without nodes hides the device from the pod resources API.",
)
def _topology(trial: Trial) -> str:
    known = 0
    for device in _devices(trial):
        if not device.HasField("topology"):
            continue
        known += 1
        if not device.topology.nodes:
            raise Failed(f"{device.ID} has a topology without nodes")
        if any(node.ID < 0 for node in device.topology.nodes):
            raise Failed(f"{device.ID} is near a node below 0, which stands for none")
    return "every topology names its nodes" if known else "no topology given"


@GROUP.check(
    "size",
    "Sends lists of less than 4 MiB",
    why="The kubelet drops a longer list and disconnects the plugin, again and again.",
)
def _size(trial: Trial) -> str:
    node = trial.first() if trial.hopeless else trial.node()
    accepted = _accepted(trial, node)
    sizes = [pb.ListAndWatchResponse(devices=each.devices).ByteSize() for each in node.lists]
    if not sizes:
        with _own_stream(node, accepted[-1]) as stream:
            if not stream.wait(trial.limits.within):
                raise NotApplicable("no list came")
            sizes = [stream.size]
    if max(sizes) > MAX_LIST_BYTES:
        raise Failed(f"sent {max(sizes):,} bytes; {MAX_LIST_BYTES:,} is the most")
    return f"sent {max(sizes):,} bytes"


@GROUP.check(
    "streams",
    "Serves several streams at the same time",
    why="A kubelet's old stream may linger while the new one opens; monitoring may open one too.",
)
def _streams(trial: Trial) -> str:
    node = trial.node()
    path, count = node.kubelet.socket_of(node.resource), trial.limits.streams
    with ExitStack() as stack:
        streams = [stack.enter_context(_kubelet.Stream(path)) for _ in range(count)]
        served = sum(stream.wait(trial.limits.first_list) for stream in streams)
        if served < count:
            raise Failed(f"of {count} more streams {served} got a list")
        slowest = max(stream.waited or 0.0 for stream in streams)
    return f"{count} more streams, each with a list within {slowest:.2f} s"


@GROUP.check(
    "deaf-stream",
    "Serves other streams while one does not read",
    why="A client that hangs must not keep the kubelet from learning of a failed device.",
)
def _deaf_stream(trial: Trial) -> str:
    node = trial.node()
    path = node.kubelet.socket_of(node.resource)
    with _kubelet.deaf_stream(path, trial.limits.call):
        node.observe(min(trial.limits.settle, 0.2))
        with _kubelet.Stream(path) as stream:
            if not stream.wait(trial.limits.first_list):
                raise Failed(f"no list on another stream within {trial.limits.first_list:g} s")
            return f"another stream got its list within {stream.waited:.2f} s"


def _accepted(trial: Trial, node: PluginNode) -> list[_kubelet.Registered]:
    calls = node.kubelet.registrations(trial.resource or None)
    if accepted := [call for call in calls if not call.refusal]:
        return accepted
    raise NotApplicable(trial.hopeless)


def _own_stream(node: PluginNode, call: _kubelet.Registered) -> _kubelet.Stream:
    """Return a stream beside the kubelet's, which may accept no list of such a size."""
    if node.plugin is None or node.plugin.status is not None:
        raise NotApplicable("the plugin has ended")
    return _kubelet.Stream(node.kubelet.plugin_dir / call.endpoint)


def _some(words: set[str]) -> str:
    return few(sorted(words), 3)
