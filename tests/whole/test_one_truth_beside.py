"""What devices, drain, evict and events, the page, the metrics and the alerts say in each mode.

As in `test_one_truth`: three healthy devices, of which a pod has one.
"""

import json
import re
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from urllib.request import urlopen

import pytest

from cluster.dra_objects import DRIVER, RESOURCE
from deviceplugin.apiserver import ApiServer
from deviceplugin.tools._plugin_pods import Plugin
from deviceplugin.tools.devices import _cli as devices
from deviceplugin.tools.drain import _cli as drain
from deviceplugin.tools.events import _cli as events
from deviceplugin.tools.evict._evictor import Budget, Evictor
from deviceplugin.tools.evict._pods import Patience, Pods
from drivers.dual_node import IDS, NODE, gopher
from drivers.moded_node import HOLDER, ModedNode
from patience import eventually
from scripted_plugin import sick

pytestmark = pytest.mark.slow


@pytest.fixture
def in_dra(root: Path) -> Iterator[ModedNode]:
    with ModedNode(root) as node:  # in which pods may share a claim
        node.enter("dra")
        yield node


def read(moded: ModedNode, path: str) -> str:
    with urlopen(f"{moded.url}{path}", timeout=30) as answer:
        return str(answer.read().decode())


def holders(moded: ModedNode) -> list[tuple[str, str]]:
    """Return the devices that the plugin says that pods hold, each with the pod."""
    (resource,) = json.loads(read(moded, "/devices"))["resources"]
    pairs = ((one["id"], hold["pod"]) for one in resource["devices"] for hold in one["holders"])
    return sorted(pairs)


def seen(moded: ModedNode, *pods: str) -> str:
    """Wait until the plugin knows which pods hold devices; return the device of the first."""
    eventually(lambda: {pod for _, pod in holders(moded)} == {*pods}, "the holders")
    return next(device for device, pod in holders(moded) if pod == pods[0])


def listed(
    moded: ModedNode, capsys: pytest.CaptureFixture[str], *options: str
) -> dict[tuple[str, str], tuple[str, bool]]:
    """Return what ``deviceplugin devices`` says: the state of each device, and if it is held."""
    socket = f"--pod-resources-socket={moded.kubelet.pod_resources_socket}"
    capsys.readouterr()
    assert 0 == devices.main([socket, "--output=json", *options])
    found = json.loads(capsys.readouterr().out)["devices"]
    return {(one["resource"], one["id"]): (one["state"], bool(one["holders"])) for one in found}


def test_devices_are_free_or_in_use_whoever_offers_them(
    moded: ModedNode, capsys: pytest.CaptureFixture[str]
) -> None:
    held = seen(moded, HOLDER)
    states = {(RESOURCE, one): ("in use" if one == held else "free", one == held) for one in IDS}
    assert states == listed(moded, capsys, f"--plugin={moded.url}")

    in_claim = (f"{DRIVER} (DRA)", f"{NODE}/{RESOURCE}/{held}"), ("in use", True)
    free = {key: state for key, state in states.items() if key[1] != held}
    of_kubelet = {
        "device-plugin": states,
        "dra": dict([in_claim]),
        "to dra": {(RESOURCE, held): ("not allocatable", True)},  # or unhealthy: that is unknown
        "to device-plugin": free | dict([in_claim]),
    }[moded.mode]
    assert of_kubelet == listed(moded, capsys)


def test_the_page_and_the_metrics_count_each_device_once(moded: ModedNode) -> None:
    seen(moded, HOLDER)
    text = " ".join(re.sub("<[^>]+>", " ", read(moded, "/").partition("<section>")[2]).split())
    by_dra = {"dra": " · 3 offered by DRA", "to dra": " · 2 offered by DRA"}.get(moded.mode, "")
    said = "offered by DRA" if moded.mode == "dra" else "registered"
    numbers = f"3 devices · 3 healthy{by_dra} · 1 held · 2 free"
    assert text.startswith(f"{RESOURCE} {said} Gophers {numbers}")

    lines = read(moded, "/metrics").splitlines()
    found = dict(line.rsplit(" ", 1) for line in lines if line.startswith("deviceplugin_d"))
    of = f'resource="{RESOURCE}"}}'
    assert [3, 1, 2] == [
        float(found[f"deviceplugin_devices{name}{of}"])
        for name in ('{health="healthy",', "_allocated{", "_free{")
    ]
    assert 1 == sum(line.startswith("deviceplugin_device_allocated{") for line in lines)
    assert f"deviceplugin_registered{{{of} 1.0" in lines  # or an alert fires


def drained(
    moded: ModedNode, capsys: pytest.CaptureFixture[str], *words: str
) -> tuple[int, Sequence[str]]:
    places = f"--driver-dir={moded._root / 'plugins'}", "--timeout=1ms"
    socket = f"--pod-resources-socket={moded.kubelet.pod_resources_socket}"
    capsys.readouterr()
    status = drain.main([*words, *places, socket])
    return status, capsys.readouterr().out.splitlines()


def test_drain_waits_for_the_protocol_that_somebody_has_a_device_by(
    moded: ModedNode, capsys: pytest.CaptureFixture[str]
) -> None:
    held = seen(moded, HOLDER)
    by_dra = moded.mode in {"dra", "to device-plugin"}
    status, lines = drained(moded, capsys, "dra")
    claims = [line for line in lines if f" has {held}" in line]
    assert (int(moded.mode != "device-plugin"), int(by_dra)) == (status, len(claims))

    said = f"{RESOURCE}: pod default/{HOLDER} has {held}"
    expected = (0, ["nobody holds devices through device-plugin"]) if by_dra else (1, [said])
    assert expected == drained(moded, capsys, "device-plugin", f"--resource={RESOURCE}")


def stored(moded: ModedNode) -> list[tuple[str, str, str]]:
    found = moded.cluster.list("Event")
    return [(one["reason"], one["involvedObject"]["name"], one["message"]) for one in found]


def test_events_report_what_is_wrong_and_nothing_else(moded: ModedNode) -> None:
    held = seen(moded, HOLDER)
    words = [f"--node={NODE}", f"--plugin={moded.url}", f"--api={moded.cluster.url}", "--once"]
    assert 0 == events.main(words)
    assert [] == stored(moded)

    others = [gopher(one) for one in IDS if one != held]
    moded.plugin.set(sick(held, "it smokes"), *others)
    eventually(lambda: "it smokes" in read(moded, "/devices"), "the discovery")
    assert 0 == events.main(words)
    assert 0 == events.main(words), "the same Event is not created twice"
    message = f"{RESOURCE}: {held} is unhealthy: it smokes (1 of 3 unhealthy)"
    assert [("DeviceUnhealthy", NODE, message)] == stored(moded)


def test_an_event_says_that_no_claim_can_be_prepared(in_dra: ModedNode) -> None:
    in_dra.kubelet.stop()
    eventually(lambda: json.loads(read(in_dra, "/devices"))["dra"]["problem"], "the loss")
    words = [f"--node={NODE}", f"--plugin={in_dra.url}", f"--api={in_dra.cluster.url}", "--once"]
    assert 0 == events.main(words)
    (found,) = (one for one in stored(in_dra) if one[0] == "DriverNotReady")
    assert found[2].startswith(f"{DRIVER}: the DRA driver is not ready: waiting for ")


def evicted(moded: ModedNode, until: int, per_minute: int = 5) -> dict[str, int]:
    """Let an evictor act every 10 s; return when it evicted which pods."""
    patience = Patience(lambda _resource: 120)
    api, plugin = ApiServer(moded.cluster.url), Plugin(NODE, moded.url)
    budget = Budget(per_minute, 60)
    evictor = Evictor(Pods(api, NODE, bare=True), budget, dry_run=False)
    found: dict[str, int] = {}
    for now in range(0, until, 10):
        evictor.act(plugin.says(partial(patience.observe, now=now)), now)
        for _, name, _ in stored(moded):
            found.setdefault(name, now)
    return found


def test_evict_finds_the_pod_however_it_came_to_its_device(moded: ModedNode) -> None:
    held = seen(moded, HOLDER)
    moded.plugin.set(sick(held), *(gopher(one) for one in IDS if one != held))
    eventually(lambda: "out of order" in read(moded, "/devices"), "the discovery")
    assert {HOLDER: 120} == evicted(moded, 200)
    eventually(lambda: moded.cluster.get("Pod", HOLDER) is None, "the end of the pod")


def test_evict_finds_all_pods_of_a_shared_claim_each_within_the_budget(in_dra: ModedNode) -> None:
    make, namespace = in_dra.make, {"labels": {"resource.kubernetes.io/admin-access": "true"}}
    in_dra.cluster.change("Namespace", "default", lambda one: one["metadata"].update(namespace))
    make.claim("shared")
    make.claim("watched", adminAccess=True, allocationMode="All")
    for name, claim in (("one", "shared"), ("two", "shared"), ("monitor", "watched")):
        container = {"name": "main", "image": "none", "resources": {"claims": [{"name": "d"}]}}
        make.pod_with(claim, name, containers=[container])
        in_dra.wait_for_phase(name, "Running")
    (shared,) = make.devices_of("shared")
    seen(in_dra, "one", "two", HOLDER)
    in_dra.plugin.set(sick(shared), *(gopher(one) for one in IDS if one != shared))
    eventually(lambda: "out of order" in read(in_dra, "/devices"), "the discovery")
    assert {"one": 120, "two": 180} == evicted(in_dra, 400, per_minute=1)
    assert "Running" == make.status("monitor")["phase"]
