"""``make deploy`` and ``make undeploy``, by the real kubectl, on a stand-in for a cluster."""

import os
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

from cluster.kinds import DAEMON_SET, EVENT, KINDS, NAMESPACE, NODE
from cluster.small_cluster import PLUGINS, SmallCluster, running, why_not
from deploy import DeployError, main, read, variables
from manifests.deployment_policy import problems
from manifests.kustomize import render_by_kustomize
from patience import eventually

ROOT = Path(__file__).parents[2]
needs_kubectl = pytest.mark.skipif(bool(why_not()), reason=why_not() or "-")
NAMED = ("PLUGIN=simulated", "NAMESPACE=hw", "RESOURCE_NAME=example.com/frob")


@pytest.fixture
def cluster() -> Iterator[SmallCluster]:
    with running(PLUGINS) as made:
        yield made


Run = Callable[..., str]


@pytest.fixture
def run(
    cluster: SmallCluster,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Run:
    """Return what runs a verb, and returns what it says."""
    monkeypatch.setattr("deploy.TARGET", tmp_path)
    for name, value in cluster.environment.items():
        monkeypatch.setenv(name, value)

    def verb(*words: str) -> str:
        assert 0 == main(words)
        return capsys.readouterr().out

    return verb


def everything(cluster: SmallCluster) -> set[tuple[str, str]]:
    return {(kind.name, name) for kind in KINDS if kind != EVENT for name in cluster.there(kind)}


def allocatable(cluster: SmallCluster) -> dict[str, str]:
    (node,) = cluster.store.list(NODE)
    found: dict[str, str] = node["status"].get("allocatable", {})
    return found


@needs_kubectl
@pytest.mark.slow  # the plugin, and kubectl for each step
def test_what_is_deployed_runs_and_leaves_nothing_when_it_is_removed(
    cluster: SmallCluster, run: Run
) -> None:
    eventually(lambda: ("ConfigMap", "kube-root-ca.crt") in everything(cluster))
    before = everything(cluster)
    said = run("deploy", *NAMED, "NUMBER_DEVICES=3", "COMPONENTS=events verbose")
    assert said.endswith(
        "\nkubectl --namespace hw rollout status daemonset/simulated-device-plugin\n"
    )
    eventually(lambda: "3" == allocatable(cluster).get("example.com/frob"))
    # With other variables it is the same plugin.
    run("deploy", *NAMED, "NUMBER_DEVICES=4", "COMPONENTS=events")
    eventually(lambda: "4" == allocatable(cluster).get("example.com/frob"))
    # A namespace that others use too stays until they are gone.
    cluster.kubectl("apply", "--filename=-", text=BESIDE)
    words = (*NAMED, "COMPONENTS=events")
    assert "namespace hw is left: it has " in run("undeploy", *words)
    cluster.kubectl("delete", "--filename=-", text=BESIDE)
    run("deploy", *words)
    for _ in range(2):
        run("undeploy", *words)
        eventually(lambda: before == everything(cluster))


BESIDE = """
apiVersion: v1
kind: Pod
metadata: {name: beside, namespace: hw}
spec: {containers: [{name: main, image: nowhere}]}
"""


@needs_kubectl
@pytest.mark.slow
def test_a_namespace_that_was_there_is_neither_changed_nor_deleted(
    cluster: SmallCluster, run: Run
) -> None:
    eventually(lambda: ("ConfigMap", "kube-root-ca.crt") in everything(cluster))
    before, space = everything(cluster), cluster.store.list(NAMESPACE)
    words = ("PLUGIN=simulated", "NAMESPACE=default")
    assert "namespace default is there already: left as it is\n" in run("deploy", *words)
    assert ["simulated-device-plugin"] == cluster.there(DAEMON_SET)
    said = run("undeploy", *words)
    assert said.endswith("namespace default is left: it was not made by make deploy\n")
    eventually(lambda: before == everything(cluster))
    assert space == cluster.store.list(NAMESPACE)


@needs_kubectl
def test_the_overlay_is_as_every_deployment_should_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("deploy.kubectl", lambda *_: "")
    monkeypatch.setattr("deploy.TARGET", tmp_path)
    words = ("PLUGIN=gopher", "RESOURCE_NAME=example.com/mole", "REGISTRY=registry.example.com/hw")
    assert 0 == main(["deploy", *words])
    manifests = render_by_kustomize(tmp_path / "gopher")
    assert manifests is not None
    assert [] == problems(manifests, "gopher-device-plugin")
    (daemon_set,) = (one for one in manifests if one["kind"] == "DaemonSet")
    (container,) = daemon_set["spec"]["template"]["spec"]["containers"]
    assert {"name": "DP_RESOURCE", "value": "example.com/mole"} in container["env"]
    assert container["image"].startswith("registry.example.com/hw/gopher-device-plugin:")


def test_two_at_once_apply_and_delete_each_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    touched: list[str] = []

    def kubectl(*words: str) -> str:
        if words[0] not in {"apply", "delete"}:
            return ""
        folder = Path(words[-1].removeprefix("--kustomize="))
        if not touched:
            touched.append("")
            assert 0 == main(["undeploy", "PLUGIN=gopher", "NAMESPACE=second"])
        overlay = yaml.safe_load((folder / "kustomization.yaml").read_text())
        assert (folder / overlay["resources"][0] / "kustomization.yaml").is_file()
        touched.append(f"{words[0]} {overlay['namespace']}")
        return ""

    monkeypatch.setattr("deploy.TARGET", tmp_path / "dist")
    monkeypatch.setattr("deploy.kubectl", kubectl)
    assert 0 == main(["deploy", "PLUGIN=gopher", "NAMESPACE=first"])
    assert ["", "delete second", "apply first"] == touched
    # The newest is left, to be looked at.
    assert [tmp_path / "dist/gopher"] == [*(tmp_path / "dist").iterdir()]
    assert "namespace: second\n" in (tmp_path / "dist/gopher/kustomization.yaml").read_text()


def test_an_empty_variable_and_those_of_make_are_as_if_not_given() -> None:
    assert {"PLUGIN": "gpu"} == read(["PLUGIN=gpu", "NAMESPACE=", "PYTHON=python3", "ARGS=x"])


REFUSED = {
    "": "say which plugin: PLUGIN=NAME, one of amd, fpga",
    "PLUGIN=gophr": "PLUGIN: 'gophr' is not known: did you mean gopher?",
    "PLUGIN=base": "PLUGIN: 'base' is not known: there are amd, fpga",
    "PLUGIN=gopher gpu": "'gpu' is not NAME=VALUE",
    "PLUGIN=gopher NAMESPACE=My_ns": "NAMESPACE: 'My_ns' is not a name of a namespace",
    "PLUGIN=gopher COMPONENTS=event": "COMPONENTS: 'event' is not known: did you mean events?",
    "PLUGIN=gopher NAMESPCE=x": "variable: 'NAMESPCE' is not known: did you mean NAMESPACE?",
    "PLUGIN=gopher NUMBER_DEVICES=2": "variable: 'NUMBER_DEVICES' is not known: there are ",
    "PLUGIN=simulated NUMBER_DEVICES=two": "NUMBER_DEVICES: 'two' is not a whole number",
    "PLUGIN=gopher DP_LOG_LEVEL=loud": "DP_LOG_LEVEL: ",
    "PLUGIN=simulated RESOURCE_NAME=y": "RESOURCE_NAME: 'y': it needs a domain, as in exam",
    "PLUGIN=gpu RESOURCE_NAME=a.b/c": "RESOURCE_NAME: the plugin gpu names its resources by",
}


@pytest.mark.parametrize("line", REFUSED)
def test_what_is_wrong_is_refused_before_anything_is_applied(
    line: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("deploy.kubectl", None)
    assert 2 == main(["deploy", *line.split()])
    assert REFUSED[line] in capsys.readouterr().err


def test_another_verb_is_told_what_there_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert 2 == main(["redeploy"])
    assert "deploy.py deploy PLUGIN=simulated" in capsys.readouterr().err


def test_a_kubectl_that_is_missing_or_fails_is_one_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert 1 == main(["undeploy", "PLUGIN=gopher"])
    assert "undeploy: kubectl is not installed\n" == capsys.readouterr().err
    (tmp_path / "kubectl").write_text("#!/bin/sh\nexit 1\n")
    (tmp_path / "kubectl").chmod(0o755)
    assert 1 == main(["undeploy", "PLUGIN=gopher"])
    assert "undeploy: kubectl get failed, see above\n" == capsys.readouterr().err


def test_the_page_names_the_variables_that_there_are() -> None:
    page = (ROOT / "common/docs/deploying.md").read_text()
    (words,) = re.findall(r"`make deploy (.+?)`", page)
    given = read(words.split())
    assert {"RESOURCE_NAME": given["RESOURCE_NAME"]}.items() <= variables(given).items()
    with pytest.raises(DeployError):
        variables({**given, "RESOURCE_NAME": "x"})


def test_the_verbs_pass_what_they_are_given() -> None:
    words = ["make", "--dry-run", "deploy", "PLUGIN=gopher", "COMPONENTS=events monitoring"]
    outside = {name: value for name, value in os.environ.items() if "MAKE" not in name}
    done = subprocess.run(words, cwd=ROOT, env=outside, capture_output=True, text=True, check=True)
    command = done.stdout.strip().splitlines()[-1]
    echoed = subprocess.run(
        ["sh", "-c", f"printf '%s\n' {command}"], capture_output=True, check=True
    )
    assert {"PLUGIN=gopher", "COMPONENTS=events monitoring"} <= set(
        echoed.stdout.decode().splitlines()
    )
