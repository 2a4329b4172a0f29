"""Every plugin that needs no hardware, from installation to removal, in every home."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from home import Home, Plugin

GENERIC = """
devices:
  - name: e2e-full
    groups:
      - {count: 2, select: {subsystem: mem, name: full}, mountPath: /dev/e2e-full}
"""
GOPHER = Plugin("gopher", "example.com/gopher", 2, files="/etc/gophers")
SIMULATED = Plugin("simulated", "example.com/simple-device", 2)
EXAMPLES = [
    pytest.param(GOPHER, "^my gophers are g(ary,gina|ina,gary)$", marks=pytest.mark.gopher),
    pytest.param(SIMULATED, "^SIMULATED_.+=/dev/[01]$", marks=pytest.mark.simulated),
]
CASES = [
    pytest.param(GOPHER, marks=pytest.mark.gopher, id="gopher"),
    pytest.param(SIMULATED, marks=pytest.mark.simulated, id="simulated"),
    pytest.param(
        Plugin("generic", "squat.ai/e2e-full", 2, config=GENERIC),
        marks=pytest.mark.generic,
        id="generic",
    ),
]
each = pytest.mark.parametrize("plugin", CASES)


@pytest.fixture
def installed(home: Home) -> Callable[[Plugin], None]:
    def install(plugin: Plugin) -> None:
        home.install(plugin)
        if plugin.files:
            home.add_file("gary")
            home.add_file("gina")
        home.wait_allocatable(plugin.resource, plugin.devices)

    return install


@each
def test_a_pod_gets_what_it_asks_for_and_the_next_one_is_refused(
    home: Home, plugin: Plugin, installed: Callable[[Plugin], None]
) -> None:
    installed(plugin)
    given = home.run("first", plugin.resource, 1)
    if plugin.name == "gopher":
        assert given.envs["Gopher"] in {"gary", "gina"}
    elif plugin.name == "simulated":
        assert 1 == sum(name.startswith("SIMULATED_") for name in given.envs)
    else:
        assert "/dev/e2e-full" in given.nodes
    refused = home.refusal(plugin.resource, plugin.devices)
    assert plugin.resource in refused
    assert f'resource="{plugin.resource}"' in home.metrics()
    home.delete("first")
    home.run("second", plugin.resource, plugin.devices)


@pytest.mark.parametrize(("plugin", "printed"), EXAMPLES)
def test_an_example_prints_what_its_page_says(
    home: Home, plugin: Plugin, printed: str, installed: Callable[[Plugin], None]
) -> None:
    installed(plugin)
    pod = Path(__file__).parents[1] / "demo/examples" / plugin.name / "pod.yaml"
    said = home.run_example(yaml.safe_load(pod.read_text()))
    assert re.search(printed, said, re.MULTILINE)


@each
def test_a_new_plugin_pod_disturbs_nobody(
    home: Home, plugin: Plugin, installed: Callable[[Plugin], None]
) -> None:
    installed(plugin)
    home.run("keeper", plugin.resource, 1)
    home.restart_plugin()
    home.wait_allocatable(plugin.resource, plugin.devices)
    home.run("other", plugin.resource, 1)
    assert home.is_running("keeper")


@pytest.mark.gopher
def test_devices_come_and_go(home: Home, installed: Callable[[Plugin], None]) -> None:
    installed(GOPHER)
    home.add_file("gus")
    home.wait_allocatable(GOPHER.resource, 3)
    home.remove_file("gus")
    home.wait_allocatable(GOPHER.resource, 2)


@each
def test_devices_are_back_after_a_restart_of_the_kubelet(
    home: Home, plugin: Plugin, installed: Callable[[Plugin], None]
) -> None:
    installed(plugin)
    home.restart_kubelet()
    home.wait_allocatable(plugin.resource, plugin.devices)
    home.run("after", plugin.resource, 1)


@each
def test_nothing_is_left_after_the_plugin_is_uninstalled(
    home: Home, plugin: Plugin, installed: Callable[[Plugin], None]
) -> None:
    installed(plugin)
    home.uninstall()
