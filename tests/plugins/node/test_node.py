"""The agent's package and deployment: all plugins, what each needs, and nothing twice."""

import json
import re
import sys
import threading
from dataclasses import replace
from importlib.metadata import requires
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
import yaml

import deviceplugin as dp
import deviceplugin_node
from agents.agent_node import ALL, AgentNode, agent_node
from conformant import PATIENT
from deviceplugin.tools.agent import _sections
from deviceplugin.tools.agent._sections import attribute, settings_of
from deviceplugin.tools.doctor import _cli as doctor
from deviceplugin_testing.fixture import Kubelet
from deviceplugin_testing.simulator import Container, Pod
from deviceplugin_testing.tools.conformance import _cli as conformance
from manifests.deployment_policy import problems
from manifests.kustomize import Manifest, in_order, overlay, render, render_by_kustomize
from patience import eventually
from plugin_process import run, started

ROOT = Path(__file__).parents[3]
AGENT = str(Path(sys.executable).with_name("node-device-plugin"))
NAMES = _sections.names()
PARTS = [name for name in NAMES if (ROOT / f"deployments/components/node-{name}").exists()]


def union(names: list[str]) -> str:
    """Return a file with what each plugin's own deployment has in its file."""
    return yaml.safe_dump(
        {
            name: yaml.safe_load((ROOT / f"deployments/{name}/config.yaml").read_text()) or {}
            for name in names
        }
    )


def of_kind(manifests: list[Manifest], kind: str) -> Any:
    return next(one for one in manifests if one["kind"] == kind)


def pod(manifests: list[Manifest]) -> Any:
    return of_kind(manifests, "DaemonSet")["spec"]["template"]["spec"]


# The package.


def test_the_package_brings_every_plugin_that_can_run_beside_others() -> None:
    found = re.findall(r"deviceplugin-(\w+)~=", " ".join(requires("deviceplugin-node") or ()))
    assert sorted(found) == NAMES
    assert "all plugins" in str(deviceplugin_node.__doc__).lower()


# The deployment.


def test_all_parts_together_are_as_a_deployment_should_be(tmp_path: Path) -> None:
    place = overlay(tmp_path, "node", *(f"node-{name}" for name in PARTS))
    manifests = render(place)
    of_kind(manifests, "ConfigMap")["data"]["config.yaml"] = union(NAMES)
    assert [] == problems(manifests, "node-device-plugin", {"/dev", "/sys"})
    rendered = render_by_kustomize(place)
    assert rendered is None or in_order(rendered) == in_order(render(place))


@pytest.mark.parametrize("name", NAMES)
def test_a_part_brings_what_the_plugins_own_deployment_has(name: str, tmp_path: Path) -> None:
    own, base = pod(render(ROOT / "deployments" / name)), pod(render(ROOT / "deployments/base"))
    parts = [f"node-{name}"] if name in PARTS else []
    whole = pod(render(overlay(tmp_path, "node", *parts)))
    (mine,), (bare,), (shared,) = own["containers"], base["containers"], whole["containers"]

    def added(key: str) -> list[Any]:
        return [one for one in mine.get(key, ()) if one not in bare.get(key, ())]

    mounts = {one["mountPath"]: one.get("readOnly") for one in shared["volumeMounts"]}
    wanted = {one["mountPath"]: one.get("readOnly") for one in added("volumeMounts")}
    assert wanted == {path: mounts[path] for path in wanted}
    assert [one for one in added("env") if one not in shared["env"]] == []
    places = {one["hostPath"]["path"] for one in whole["volumes"] if "hostPath" in one}
    assert {one["hostPath"]["path"] for one in own["volumes"] if "hostPath" in one} <= places
    assert len(own.get("initContainers", ())) == len(whole.get("initContainers", ()))
    more = len(own["volumes"]) - len(base["volumes"])
    assert more == len(whole["volumes"]) - len(base["volumes"]), "and no more"


def test_the_hook_is_installed_from_the_agents_image(tmp_path: Path) -> None:
    place = overlay(tmp_path, "node", "node-fpga")
    for manifests in (render(place), render_by_kustomize(place) or render(place)):
        (init,) = pod(manifests)["initContainers"]
        assert pod(manifests)["containers"][0]["image"] == init["image"]
        python, *words = init["command"]
        assert "python3" == python
        status, out, _ = run(*words, "install-hook", "--help", command=sys.executable)
        assert (0, True) == (status, "hook" in out)


@pytest.mark.parametrize("name", NAMES)
def test_every_plugin_takes_what_its_own_file_has_as_a_section(name: str, tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(union([name]))
    settings = settings_of({name: _sections.hosted(name).settings}).of_file(path)
    assert isinstance(getattr(settings, attribute(name)), dp.Settings)


# A node with all hardware.


@pytest.fixture
def node(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> AgentNode:
    cache = tmp_path_factory.getbasetemp().parent / "fake-nvml"
    return agent_node(tmp_path / "node", cache)


def test_all_plugins_offer_their_hardware_from_one_process(
    kubelet: Kubelet, node: AgentNode
) -> None:
    simulated = kubelet.simulated
    words = (f"--config={node.config}", f"--pod-resources-socket={simulated.pod_resources_socket}")
    with started(simulated.plugin_dir, *words, command=AGENT, **node.environment) as agent:
        eventually(lambda: len(ALL) == len(simulated.registered))
        eventually(lambda: all(map(simulated.healthy, simulated.registered)))
        for number, resource in enumerate(sorted(simulated.registered)):
            assert simulated.run(Pod(f"p{number}", [Container("c", {resource: 1})]))
        simulated.restart()
        eventually(lambda: len(ALL) == len(simulated.registered))
        assert 0 == agent.stop()


def test_one_poll_of_the_kubelet_and_one_page_are_for_all_plugins(kubelet: Kubelet) -> None:
    class Lamp(dp.Plugin):
        resource = "example.com/lamp"

        def discover(self) -> list[dp.Device]:
            return [dp.Device("one")]

    class Horn(Lamp):
        resource = "example.com/horn"

    with kubelet.running(Lamp(), Horn(), http_address="127.0.0.1:0") as running:
        for resource in ("example.com/lamp", "example.com/horn"):
            running.wait_for(resource, {"one"})
        names = [thread.name for thread in threading.enumerate()]
        assert 1 == names.count("holders")
        assert 1 == names.count("file-watcher")
        assert {"discovery-Lamp", "discovery-Horn"} <= {*names}
        with urlopen(f"http://127.0.0.1:{running.host.http_port}/metrics", timeout=30) as answer:
            page = answer.read().decode()
    assert {"example.com/lamp", "example.com/horn"} == {
        *re.findall(r'^deviceplugin_devices\{.*resource="([^"]+)"', page, re.MULTILINE)
    }


# The tools.


def test_the_doctor_reads_every_section(
    node: AgentNode, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    only = ["--only=sections", "--only=generic", "--json"]

    def examined(*words: str) -> tuple[int, dict[str, str]]:
        status = doctor.main([*only, *words])
        found = json.loads(capsys.readouterr().out)["findings"]
        return status, {one["looked_at"]: one["found"] for one in found}

    status, found = examined(f"--config={node.config}")
    assert 0 == status
    assert {f"{node.config}: {name}" for name in ALL} <= {*found}
    assert "1 of 1 paths match" == found[f"{node.config}: full"]
    monkeypatch.setenv("DP_CONFIG", str(node.config))  # as in the pod
    assert (status, found) == examined()

    text = node.config.read_text()
    node.config.write_text(text.replace('"number-devices": 8', '"number-devices": "many"'))
    status, found = examined()
    assert 1 == status
    assert "simulated.number-devices: 'many' is not a" in found[f"{node.config}: simulated"]
    assert "valid" == found[f"{node.config}: gpu"]

    node.config.write_text(text.replace('"/dev/full"', "5"))
    status, found = examined()
    assert "5 is not a string" in found[f"{node.config}: generic"]
    assert "5 is not a string" in found[str(node.config)], "the plugin's own check agrees"

    for wrong, told in (
        ('{"gopher": {}, "gophers": {}}', "gophers: neither an installed plugin nor a setting"),
        ('{"gopher": {}, "log-level": "loud"}', "log-level: 'loud' is not one of"),
        ("{", ""),
    ):
        node.config.write_text(wrong)
        status, found = examined()
        assert 1 == status
        assert told in found[str(node.config)]

    node.config.write_text('{"devices": []}')
    status, found = examined()
    assert "has no devices: its list is empty" == found[str(node.config)]


def test_the_doctor_says_which_package_of_a_section_is_broken(
    node: AgentNode, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def hosted(name: str) -> Any:
        raise dp.ConfigError(f"{name} cannot be imported")

    monkeypatch.setattr(_sections, "hosted", hosted)
    assert 1 == doctor.main(["--only=sections", f"--config={node.config}"])
    assert "gpu cannot be imported" in capsys.readouterr().out


@pytest.mark.slow
def test_conformance_checks_each_resource_of_the_agent(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = replace(PATIENT, quiet=1, settle=0.3, look=0.5, restarts=2)
    monkeypatch.setattr(conformance, "QUICK", limits)
    (tmp_path / "alice").touch()
    config = tmp_path / "config.json"
    config.write_text(
        json.dumps({"gopher": {"directory": str(tmp_path)}, "simulated": {"number-devices": 2}})
    )
    only = ["--only=registration", "--only=allocation", "--only=restart.again"]
    words = ["--quick", "--seed=1", "--each-resource", *only, "--", AGENT, f"--config={config}"]
    assert 0 == conformance.main(words)
    out = capsys.readouterr().out
    assert "example.com/gopher: " in out
    assert "example.com/simple-device: " in out
    assert "not checked" not in out


@pytest.mark.parametrize("option", ["--resource=x.io/y", "--json=/tmp/x", "--junit=/tmp/x"])
def test_each_resource_goes_with_nothing_that_is_for_one(
    option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert 2 == conformance.main(["--each-resource", option, "--", AGENT])
    assert "is for one resource, not for --each-resource" in capsys.readouterr().err
