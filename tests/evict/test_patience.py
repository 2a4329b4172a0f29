"""How long devices have been unhealthy, and who holds them."""

import re
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest

import deviceplugin as dp
from deviceplugin.tools._plugin_pods import Plugin
from deviceplugin.tools.evict import _cli
from deviceplugin.tools.evict._pods import Patience, Suspect
from deviceplugin_testing.fixture import Kubelet
from deviceplugin_testing.simulator import Pod
from patience import eventually
from scripted_plugin import RESOURCE, ScriptedPlugin, sick

R = "example.com/gpu"


def device(
    number: int, *pods: str, healthy: bool = False, reason: str = "Xid 79"
) -> dict[str, Any]:
    holders = [{"namespace": "jobs", "pod": pod, "container": "main"} for pod in pods]
    return {"id": f"gpu{number}", "healthy": healthy, "reason": reason, "holders": holders}


def page(*devices: dict[str, Any], resource: str = R) -> dict[str, Any]:
    return {"resources": [{"name": resource, "devices": list(devices)}]}


def brief(suspects: Sequence[Suspect]) -> list[tuple[str, str, float]]:
    return [(suspect.name, suspect.device, suspect.left) for suspect in suspects]


def ten_minutes(_resource: str) -> float:
    return 600


def test_all_pods_of_a_claim_are_suspects_and_a_claim_whose_pod_is_not_listed_has_none() -> None:
    shared = [one | {"claim": "c"} for one in device(0, "a", "b", "")["holders"]]
    found = Patience(ten_minutes).observe(page(device(0) | {"holders": shared}), 50)
    assert [("a", ["c"]), ("b", ["c"])] == [(one.name, [*one.claims]) for one in found]


@pytest.mark.parametrize("by_link", [False, True])
def test_a_device_whose_node_has_gone_is_one_like_others_and_says_if_a_restart_helps(
    by_link: bool,
) -> None:
    stale = {"since": "then", "by_link": by_link}
    (one,) = Patience(ten_minutes).observe(page(device(0, "a") | {"stale": stale}), 50)
    assert ("then" if by_link else "") == one.renewed_by_restart
    held = device(0, "a", reason="held: on a loan; stale: pod jobs/a has /dev/x, which is gone")
    assert [] == Patience(ten_minutes).observe(page(held | {"stale": stale}), 50)


def test_a_pod_is_a_suspect_from_the_first_moment_and_its_time_runs() -> None:
    patience = Patience(ten_minutes)
    assert [("a", "gpu0", 600)] == brief(patience.observe(page(device(0, "a")), 50))
    assert [("a", "gpu0", 550)] == brief(patience.observe(page(device(0, "a")), 100))
    (suspect,) = patience.observe(page(device(0, "a")), 110)
    assert suspect == Suspect("jobs", "a", R, "gpu0", "Xid 79", 60, 540, containers=["main"])


@pytest.mark.parametrize(
    ("between", "left"),
    [
        ([device(0, "a", healthy=True)], 600),
        ([], 600),
        ([device(0, "a", reason="Xid 79, 4 times")], 540),
    ],
)
def test_a_device_that_recovers_or_is_not_listed_begins_anew(
    between: list[dict[str, Any]], left: float
) -> None:
    patience = Patience(ten_minutes)
    patience.observe(page(device(0, "a")), 0)
    patience.observe(page(*between), 30)
    assert [("a", "gpu0", left)] == brief(patience.observe(page(device(0, "a")), 60))


def test_a_plugin_that_was_silent_for_a_minute_begins_anew() -> None:
    patience = Patience(ten_minutes)
    patience.observe(page(device(0, "a")), 0)
    assert [("a", "gpu0", 540)] == brief(patience.observe(page(device(0, "a")), 60))
    assert [("a", "gpu0", 600)] == brief(patience.observe(page(device(0, "a")), 121))


def test_a_device_that_is_held_keeps_its_pods_unless_it_is_unhealthy_as_well() -> None:
    patience = Patience(ten_minutes)
    held = device(0, "a", reason="held: its fan is replaced")
    both = device(1, "b", reason="Xid 79; held: its fan is replaced")
    assert [("b", "gpu1", 600)] == brief(patience.observe(page(held, both), 0))


def test_the_device_that_is_longest_unhealthy_is_the_first() -> None:
    patience = Patience(ten_minutes)
    patience.observe(page(device(1, "b")), 0)
    both = patience.observe(page(device(0, "a"), device(1, "b", "c")), 30)
    assert [("b", "gpu1", 570), ("c", "gpu1", 570), ("a", "gpu0", 600)] == brief(both)


def test_each_resource_has_its_own_patience_and_others_do_not_matter() -> None:
    patience = Patience({R: 120.0, "example.com/nic": 60.0}.__getitem__, [R])
    both = page(device(0, "a"), device(1) | {"holders": None})
    both["resources"] += page(device(0, "b"), resource="example.com/nic")["resources"]
    assert [("a", "gpu0", 120)] == brief(patience.observe(both, 0))


@pytest.mark.parametrize(
    ("words", "seconds"),
    [
        ([], (600, 600)),
        (["5m"], (300, 300)),
        ([f"{R}=1h"], (3600, 600)),
        (["5m", f"{R}=1h", f"{R}=2h"], (7200, 300)),
    ],
)
def test_patience_is_given_for_all_or_one(words: list[str], seconds: tuple[float, float]) -> None:
    of = _cli._patience(words)
    assert seconds == (of(R), of("example.com/other"))


@pytest.mark.parametrize(
    ("word", "text"),
    [("1m", "--patience 1m: is less than 2m"), (f"{R}=x", f"--patience {R}=x: 'x' "), ("", "''")],
)
def test_patience_that_is_too_short_or_none_is_refused(word: str, text: str) -> None:
    with pytest.raises(dp.ConfigError, match=re.escape(text)):
        _cli._patience([word])


def test_what_a_plugin_answers_is_understood(kubelet: Kubelet) -> None:
    plugin, soon = ScriptedPlugin("cam0", "cam1"), timedelta(milliseconds=100)
    with kubelet.running(
        plugin, http_address="127.0.0.1:0", discovery_interval=soon, pod_resources_interval=soon
    ) as node:
        node.wait_for(RESOURCE, {"cam0", "cam1"})
        url = f"http://127.0.0.1:{node.host.http_port}"
        node.kubelet.run(Pod.of("door", main={RESOURCE: 2}))
        plugin.set(sick("cam0", "lens cap is on"), "cam1")
        patience = Patience(ten_minutes)

        def suspects() -> Sequence[Suspect]:
            return Plugin("n", url).says(lambda page: patience.observe(page, 0.0))

        (suspect,) = eventually(suspects, "the pod to be a suspect")
    assert ("door", "cam0", "lens cap is on") == (suspect.name, suspect.device, suspect.reason)
