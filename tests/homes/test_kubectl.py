"""The deployments and the pages about them, by the real kubectl, on a stand-in for a cluster."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from cluster.kinds import CONFIG_MAP, DAEMON_SET, EVENT, KINDS, POD
from cluster.small_cluster import PLUGINS, SHELL, SmallCluster, running, why_not
from manifests.expected import fitting
from manifests.kustomize import overlay
from patience import eventually

ROOT = Path(__file__).parents[2]
PODS = sorted(ROOT.glob("demo/examples/*/pod.yaml"))
pytestmark = [
    pytest.mark.skipif(bool(why_not()), reason=why_not() or "-"),
    pytest.mark.slow,  # a kubectl for each step, and plugins
]


@pytest.fixture
def cluster() -> Iterator[SmallCluster]:
    """Give a cluster that has no plugin's image: pods stay as they are."""
    with running(SHELL) as made:
        yield made


@pytest.fixture
def full() -> Iterator[SmallCluster]:
    with running({**PLUGINS, **SHELL}) as made:
        yield made


def everything(cluster: SmallCluster) -> set[tuple[str, str]]:
    """Return what there is, besides what is told."""
    return {(kind.name, name) for kind in KINDS if kind != EVENT for name in cluster.there(kind)}


def test_a_deployment_with_all_components_is_applied_once_and_deleted_wholly(
    cluster: SmallCluster, tmp_path: Path
) -> None:
    eventually(lambda: 2 == len(cluster.there(CONFIG_MAP)))
    before = everything(cluster)
    words = f"--kustomize={overlay(tmp_path, 'generic', *fitting('generic'))}"
    first = cluster.kubectl("apply", words).splitlines()
    assert 5 <= len(first)
    assert [line for line in first if not line.endswith(" created")] == []
    again = cluster.kubectl("apply", words).splitlines()
    assert [line.replace(" created", " unchanged") for line in first] == again
    assert before < everything(cluster)
    cluster.kubectl("delete", words, "--ignore-not-found")
    assert before == everything(cluster)


BLOCK = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def follow(page: str, cluster: SmallCluster, other: tuple[str, str] = ("", "")) -> list[str]:
    """Do what a page says, wait until it prints what it shows, and return what was done.

    What is done on a node, with sudo, is done in the node's directory. ``other`` is what can be
    printed as well, and what is shown for that.
    """
    done = []
    for block in BLOCK.findall(page):
        for step in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, shown = step.partition("\n")
            here = command.replace("sudo ", "").replace("/etc/", f"{cluster.node.root}/etc/")
            if shown and "--output" in command:
                eventually(lambda: shown == cluster.shell(here))  # noqa: B023
            else:
                said = cluster.shell(here).replace(*other)
                assert not shown or said.endswith(shown), said
            done.append(command)
    return done


def test_the_first_screens_are_what_one_sees(full: SmallCluster) -> None:
    for name in ("alice", "bob", "carol"):
        full.node.path("/etc/gophers").mkdir(parents=True, exist_ok=True)
        full.node.path(f"/etc/gophers/{name}").touch()
    for name, count in (("common/docs/deploying.md", 2), ("README.md", 3)):
        page = (ROOT / name).read_text().partition("\n## ")[0]
        assert count == len(follow(page, full))


fuse = pytest.mark.skipif(not Path("/sys/class/misc/fuse").exists(), reason="no /dev/fuse")


@pytest.mark.parametrize("plugin", ["gopher", "simulated", pytest.param("generic", marks=fuse)])
def test_a_page_on_an_example_can_be_followed(plugin: str, full: SmallCluster) -> None:
    eventually(lambda: 2 == len(full.there(CONFIG_MAP)))
    before = everything(full)
    page = (ROOT / f"demo/examples/{plugin}/README.md").read_text()
    assert 7 <= len(follow(page, full, ("-1=/dev/1", "-0=/dev/0")))
    assert before == everything(full)


def test_a_field_that_is_misspelt_is_refused(cluster: SmallCluster, tmp_path: Path) -> None:
    place = overlay(tmp_path, "gopher") / "kustomization.yaml"
    patch = [{"op": "add", "path": "/spec/template/spec/tolerationz", "value": []}]
    change = {"patches": [{"target": {"kind": "DaemonSet"}, "patch": json.dumps(patch)}]}
    place.write_text(json.dumps({**json.loads(place.read_text()), **change}))
    done = cluster.try_kubectl("apply", f"--kustomize={tmp_path}")
    assert 'strict decoding error: unknown field "spec.template.spec.tolerationz"' in done.stderr
    assert [] == cluster.there(DAEMON_SET)


def test_examples_run_where_pod_security_is_restricted(cluster: SmallCluster) -> None:
    level = "pod-security.kubernetes.io/enforce=restricted"
    cluster.kubectl("label", "namespace", "default", level)
    eventually(lambda: 2 == len(cluster.there(CONFIG_MAP)))
    cluster.kubectl("apply", *(f"--filename={path}" for path in PODS))
    wide = yaml.safe_load(PODS[0].read_text())
    wide["metadata"]["name"] = "wide"
    wide["spec"]["volumes"] = [{"name": "host", "hostPath": {"path": "/"}}]
    done = cluster.try_kubectl("apply", "--filename=-", text=json.dumps(wide))
    assert 'violates PodSecurity "restricted:latest": hostPath volumes' in done.stderr
    assert len(PODS) == len(cluster.there(POD))


def test_a_pod_says_why_it_does_not_run(cluster: SmallCluster) -> None:
    eventually(lambda: 2 == len(cluster.there(CONFIG_MAP)))
    cluster.kubectl("apply", f"--filename={ROOT}/demo/examples/gopher/pod.yaml")
    cluster.kubectl("apply", f"--kustomize={ROOT}/deployments/gopher")
    eventually(lambda: 2 == len(cluster.there(EVENT)))
    told = cluster.kubectl("get", "events", "--all-namespaces")
    assert "0/1 nodes are available: 1 Insufficient example.com/gopher." in told
    assert 'failed to pull image "gopher-device-plugin:0.1.0"' in told


def test_kubectl_shows_events_of_devices(cluster: SmallCluster, tmp_path: Path) -> None:
    device = {"id": "cam1", "healthy": False, "reason": "lens cap is on"}
    resource = {"name": "example.com/camera", "registered": True, "problem": ""}
    found = {"resources": [{**resource, "devices": [device]}]}
    (tmp_path / "devices.json").write_text(json.dumps(found))
    words = ["events", "--node=node-1", f"--api={cluster.url}", "--once"]
    program = [sys.executable, "-m", "deviceplugin", *words]
    subprocess.run([*program, f"--plugin={tmp_path}/devices.json"], check=True, timeout=20)
    told = "example.com/camera: cam1 is unhealthy: lens cap is on (1 of 1 unhealthy)"
    (line,) = cluster.kubectl("get", "events", "--no-headers").splitlines()
    assert ["Warning", "DeviceUnhealthy", "node/node-1", *told.split()] == line.split()[1:]
    assert told in cluster.kubectl("describe", "node", "node-1")
