"""Events of devices that are healthy, and will not be for long."""

from datetime import UTC, datetime

import deviceplugin as dp
from deviceplugin.tools.events._notice import Fact, Notice, read_facts
from deviceplugin.tools.events._watch import Watch
from deviceplugin_testing.fixture import Kubelet
from patience import eventually
from scripted_plugin import RESOURCE, ScriptedPlugin

AT = datetime(2026, 11, 22, 6, 0, tzinfo=UTC)


def fact(reason: str = "", *, good: bool = True) -> Fact:
    return Fact(RESOURCE, "a", good, reason, AT.isoformat())


def news(watch: Watch, now: float, one: Fact) -> tuple[str, str, str] | None:
    """Return what is told of ``one``, and has been told then."""
    watch.observe([one], now, AT)
    notice = watch.news(now)
    if notice is not None:
        watch.reported(notice, now)
    return notice and (notice.kind, notice.reason, notice.message)


def test_each_change_of_state_is_told_and_a_reason_that_varies_is_not() -> None:
    watch = Watch(300.0)
    assert news(watch, 0, fact()) is None
    assert (
        "Warning",
        "DeviceDegraded",
        f"{RESOURCE}: a is degraded: 3 blocks left (0 of 1 unhealthy)",
    ) == news(watch, 10, fact("3 blocks left"))
    assert news(watch, 20, fact("2 blocks left")) is None
    told = news(watch, 30, fact("no block left", good=False))
    assert told is not None
    assert ("Warning", "DeviceUnhealthy") == told[:2]
    assert news(watch, 40, fact("3 blocks left")) is None  # it was told within the quiet period
    told = news(watch, 400, fact("3 blocks left"))
    assert told is not None
    assert "DeviceDegraded" == told[1]
    assert (
        "Normal",
        "DeviceHealthy",
        f"{RESOURCE}: a is healthy again (0 of 1 unhealthy)",
    ) == news(watch, 800, fact())


def test_the_state_of_a_registration_has_two_values() -> None:
    assert "good" == Fact(RESOURCE, "", good=True, reason="odd").state
    assert not Notice((Fact(RESOURCE, "", good=False),)).good


def test_a_plugins_degraded_device_is_read_and_given_to_pods(kubelet: Kubelet) -> None:
    worn = dp.Device("a", health=dp.Health.degraded("worn out"))
    with kubelet.running(ScriptedPlugin(worn), http_address="127.0.0.1:0") as node:
        node.wait_for(RESOURCE, {"a"})
        node.allocate("a")
        url = f"http://127.0.0.1:{node.host.http_port}"
        eventually(lambda: ["degraded"] == [f.state for f in read_facts(url, 5) if f.device])
