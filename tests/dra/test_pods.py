"""Pods with claims on a simulated kubelet, through restarts of everything."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

import deviceplugin as dp
from deviceplugin._platform.api_errors import UnavailableError, error_of
from deviceplugin.proto.dra import V1, V1BETA1
from deviceplugin_testing.simulator import (
    ClusterError,
    ContainerCreateError,
    GivenClaims,
    KubeletConfig,
    Pod,
    PodNotReadyError,
    SimulatedKubelet,
)
from drivers.driver_node import DRIVER, POOL, RESOURCE, ClaimStore, gopher
from drivers.running_driver import RunningDriver
from patience import eventually


class KubeletClaims(ClaimStore):
    """The claims that the simulated kubelet has, for the driver."""

    def __init__(self, claims: GivenClaims) -> None:
        super().__init__()
        self._claims = claims

    def get(self, namespace: str, name: str, _timeout: float = 0.0) -> Mapping[str, Any]:
        if error := next(self.failures, None):
            raise error
        if self.away:
            raise dp.DevicePluginError("the API server is away")
        try:
            return self._claims.claim(namespace, name)
        except ClusterError as error:
            raise dp.DevicePluginError(str(error)) from error


class Cluster:
    """A kubelet and the driver on one node."""

    def __init__(self, path: Path, version: str) -> None:
        self.version = version
        config = KubeletConfig(version=version, dra=True, sync_interval=0.05, watch_interval=0.05)
        self.kubelet = SimulatedKubelet(path, config=config)
        self.running = RunningDriver(path)
        self.node = self.running.node
        self.node.store = KubeletClaims(self.kubelet.claims)
        self.kubelet.start()
        self.driver = self.running.start()
        self.wait_for_driver()

    def close(self) -> None:
        self.running.close()
        self.kubelet.stop()

    def restart_driver(self) -> None:
        self.running.stop(self.driver)
        self.driver = self.running.start()
        self.wait_for_driver()

    def wait_for_driver(self) -> None:
        eventually(lambda: DRIVER in self.kubelet.dra.connected, "the driver")
        eventually(lambda: not self.driver.problem(), "its registration")

    def pod(self, name: str, *devices: str) -> Pod:
        return self.kubelet.claims.pod(name, DRIVER, POOL, devices)

    def holders(self) -> dict[str, str]:
        """Return the names of the claims that hold devices."""
        return {key[1]: claim.name for key, claim in self.node.ownership.claims().items()}


@pytest.fixture(params=["1.36", "1.32"])
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    with TemporaryDirectory(prefix="dra-") as path:
        found = Cluster(Path(path), request.param)
        yield found
        found.close()


newest = pytest.mark.parametrize("cluster", ["1.36"], indirect=True)


def test_a_pod_gets_what_its_claim_gives(cluster: Cluster) -> None:
    expected = V1 if cluster.version == "1.36" else V1BETA1
    assert expected == cluster.kubelet.dra.service(DRIVER)
    pod = cluster.pod("p", "gina", "gary")
    got = cluster.kubelet.run(pod).options["main"]
    assert got
    assert {"BOTH": "yes", "GOPHER": "gary,gina"} == got.envs
    assert ["/dev/gary", "/dev/gina"] == [node.host_path for node in got.devices]
    assert {"gary": "p", "gina": "p"} == cluster.holders()
    cluster.kubelet.terminate(pod)
    eventually(lambda: cluster.kubelet.pod(pod).phase == "Succeeded")
    assert {} == cluster.holders()
    assert [("released", ["gary", "gina"])] == cluster.node.plugin.calls[-1:]


@newest
def test_a_pod_runs_at_its_first_attempt_although_an_answer_was_lost(cluster: Cluster) -> None:
    for error in (error_of(429, {}, "1"), error_of(503, {}), UnavailableError("reset")):
        cluster.node.store.failures = iter([error])
        pod = cluster.pod(f"p{error.status}", "gary")
        assert cluster.kubelet.run(pod).options["main"]
        cluster.kubelet.terminate(pod)
        eventually(lambda: not cluster.holders(), "the release")


@newest
def test_a_container_can_start_again_whatever_was_restarted_or_removed(cluster: Cluster) -> None:
    pod = cluster.pod("p", "gary")
    cluster.kubelet.run(pod)
    (path,) = cluster.node.cdi_dir.iterdir()
    events: list[Callable[[], None]] = [
        cluster.restart_driver,
        cluster.kubelet.restart,
        path.unlink,
    ]
    for happens in events:
        happens()
        cluster.wait_for_driver()
        eventually(path.exists, "the file")
        cluster.kubelet.exit_container(pod, "main")
        got = cluster.kubelet.start_container(pod, "main")
        assert got
        assert "gary" == got.envs["GOPHER"]


@newest
def test_after_a_reboot_the_pod_gets_the_same_devices(cluster: Cluster) -> None:
    pod = cluster.pod("p", "gary")
    cluster.kubelet.run(pod)
    cluster.running.stop(cluster.driver)
    cluster.kubelet.reboot()
    cluster.node.boot_id = "boot-2"
    cluster.driver = cluster.running.start()
    cluster.wait_for_driver()
    got = cluster.kubelet.start_container(pod, "main")
    assert got
    assert "gary" == got.envs["GOPHER"]
    assert 2 == cluster.node.plugin.calls.count(("allocate", ["gary"]))


@newest
def test_a_pod_with_a_device_of_another_claim_waits_and_starts_later(cluster: Cluster) -> None:
    first, second = cluster.pod("first", "gary"), cluster.pod("second", "gary")
    cluster.kubelet.run(first)
    outcome = cluster.kubelet.run(second)
    assert "gary is held by claim default/first" in outcome.event
    cluster.kubelet.terminate(first)
    assert cluster.kubelet.start_container(second, "main")
    assert {"gary": "second"} == cluster.holders()


@newest
def test_a_pod_waits_while_the_api_server_is_away_from_the_driver(cluster: Cluster) -> None:
    pod = cluster.pod("p", "gary")
    cluster.node.store.away = True
    outcome = cluster.kubelet.run(pod)
    assert "the API server is away" in outcome.event
    assert {} == cluster.holders()
    cluster.node.store.away = False
    assert cluster.kubelet.start_container(pod, "main")


@newest
def test_without_its_file_a_container_does_not_start(cluster: Cluster) -> None:
    pod = cluster.pod("p", "gary")
    cluster.kubelet.run(pod)
    cluster.running.stop(cluster.driver)
    (path,) = cluster.node.cdi_dir.iterdir()
    path.unlink()
    cluster.kubelet.exit_container(pod, "main")
    with pytest.raises(ContainerCreateError, match="unresolvable"):
        cluster.kubelet.start_container(pod, "main")
    cluster.driver = cluster.running.start()
    cluster.wait_for_driver()
    assert cluster.kubelet.start_container(pod, "main")


PUSHED = 9.0
"""Seconds: a driver that did not say what changed would say it after 10."""


@newest
def test_the_health_of_a_device_is_in_the_status_of_its_pod(cluster: Cluster) -> None:
    pod = cluster.pod("p", "gary")
    cluster.kubelet.run(pod)

    def shown() -> tuple[str, str]:
        (entry,) = cluster.kubelet.dra.health(pod)["main"]["claim:claim"]
        return entry.health, entry.message

    eventually(lambda: shown() == ("Healthy", ""), timeout=PUSHED)
    cluster.node.resource.publish([gopher("gary", health=dp.Health.unhealthy("ECC error: 3"))])
    cluster.driver.changed()
    eventually(lambda: shown() == ("Unhealthy", "ECC error: 3"), timeout=PUSHED)
    cluster.kubelet.restart()
    eventually(lambda: shown() == ("Unhealthy", "ECC error: 3"))
    cluster.node.resource.publish([])
    cluster.driver.changed()
    eventually(lambda: shown() == ("Unhealthy", "the device is gone"), timeout=PUSHED)
    cluster.node.resource.publish([gopher("gary")])
    cluster.driver.changed()
    eventually(lambda: shown() == ("Healthy", ""), timeout=PUSHED)


@newest
def test_a_configuration_keeps_the_pod_waiting_with_the_reason(cluster: Cluster) -> None:
    pod = cluster.pod("p", "gary")
    claim: Any = cluster.kubelet.claims.claim("default", "p")
    opaque = {"driver": DRIVER, "parameters": {"fast": True}}
    claim["status"]["allocation"]["devices"]["config"] = [{"source": "FromClaim", "opaque": opaque}]
    outcome = cluster.kubelet.run(pod)
    assert f"it has parameters for driver {DRIVER}, from the claim itself" in outcome.event
    with pytest.raises(PodNotReadyError):
        cluster.kubelet.start_container(pod, "main")


@newest
def test_a_device_that_vanished_does_not_keep_its_pod_from_ending(cluster: Cluster) -> None:
    pod = cluster.pod("p", "gary")
    cluster.kubelet.run(pod)
    cluster.node.resources.pop(RESOURCE)
    cluster.restart_driver()
    cluster.kubelet.terminate(pod)
    eventually(lambda: cluster.kubelet.pod(pod).phase == "Succeeded")
    assert ({}, []) == (cluster.holders(), cluster.node.cdi_files())
