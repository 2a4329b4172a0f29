"""Upstream's scenarios of a device plugin that can be run in every home, also on a cluster.

A docstring has the titles of the cases in test/e2e_node, which the test follows step by step.
"""

import re
from dataclasses import replace
from typing import Final

import pytest

from homes.case import cases
from homes.home import Home, offered
from patience import eventually

pytestmark = [pytest.mark.gopher, pytest.mark.slow]  # a process, with its deployment
OFTEN: Final = {"DP_POD_RESOURCES_INTERVAL": "200ms"}
PLUGIN: Final = replace(cases()["gopher"].plugin, environment=OFTEN)


class Scenario:
    """A node with two gophers, and a pod that has one."""

    def __init__(self, home: Home) -> None:
        self._home = home
        home.install(PLUGIN)
        self.resource, self.count = offered(home, PLUGIN)
        self.pods: dict[str, str] = {}
        self.run("first")

    def run(self, pod: str) -> None:
        """Run a pod, and see that it is told a device that no other has."""
        device = self._home.run(pod, self.resource, 1).envs["Gopher"]
        assert device not in self.pods.values()
        self.pods[pod] = device
        self.check()

    def check(self) -> None:
        """Each pod runs, and the kubelet says that it has the device that it was told."""
        self._home.wait_allocatable(self.resource, self.count)
        assert [] == [pod for pod in self.pods if not self._home.is_running(pod)]
        eventually(self._are_listed, lambda: f"the kubelet to list {self.pods}: {self._listed()}")

    def _are_listed(self) -> bool:
        listed = self._listed()
        known = {pod: dev for pod in self.pods for one, dev in listed if one.startswith(pod)}
        return self.pods == known and len(listed) == len(self.pods)

    def _listed(self) -> list[tuple[str, str]]:
        found = re.findall(
            r"^deviceplugin_device_allocated{(.*)} 1", self._home.metrics(), re.MULTILINE
        )
        labels = [dict(re.findall(r'(\w+)="(.*?)"', one)) for one in found]
        return [(one["pod"], one["device"]) for one in labels]


@pytest.fixture
def scenario(home: Home) -> Scenario:
    return Scenario(home)


@pytest.fixture
def restarting(home: Home) -> Home:
    if not home.may_restart_kubelet:
        pytest.skip("no --restart-kubelet")
    return home


def test_a_pod_gets_a_device_and_is_listed_with_it(scenario: Scenario) -> None:
    """Can schedule a pod that requires a device"""
    scenario.check()


def test_a_pod_keeps_its_device_when_the_kubelet_restarts(
    scenario: Scenario, restarting: Home
) -> None:
    """Keeps device plugin assignments across kubelet restarts (no pod restart, no device plugin
    restart)
    """
    restarting.restart_kubelet()
    scenario.check()
    scenario.run("second")


def test_a_pod_keeps_its_device_when_the_plugin_restarts(home: Home, scenario: Scenario) -> None:
    """Keeps device plugin assignments after the device plugin has restarted (no kubelet restart,
    pod restart)
    """
    home.restart_plugin()
    scenario.check()
    scenario.run("second")


def test_a_pod_keeps_its_device_when_the_kubelet_and_then_the_plugin_restart(
    scenario: Scenario, restarting: Home
) -> None:
    """Keeps device plugin assignments after kubelet restart and device plugin restart (no pod
    restart)
    """
    restarting.restart_kubelet()
    scenario.check()
    restarting.restart_plugin()
    scenario.check()
    scenario.run("second")
