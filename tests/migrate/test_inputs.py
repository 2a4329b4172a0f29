"""What is to be migrated comes from files, from folders, and from a cluster."""

import io
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from cluster.scripted_api import Answer, Asked, Script, running
from deviceplugin.apiserver import ApiServer
from deviceplugin_cli.fleet._progress import Progress
from deviceplugin_cli.fleet._question import Reader
from deviceplugin_cli.migrate._cli import main
from deviceplugin_cli.migrate._cluster import read_cluster
from migration.peers import config_map, daemon_set, mounting

SERIAL = "--device=name: serial\ngroups:\n- paths: [{path: /dev/ttyUSB*}]\n"
SQUAT = "squat/generic-device-plugin:0.2.1"
SMARTER = "ghcr.io/smarter-project/smarter-device-manager:v1.20.12"
RULES = yaml.safe_dump([{"devicematch": "^snd$", "nummaxdevices": 20}])
DEVICES = {"hostPath": {"path": "/var/lib/kubelet/device-plugins"}, "name": "plugins"}


def named(name: str, one: dict[str, Any], **metadata: Any) -> dict[str, Any]:
    return {**one, "metadata": {"namespace": "kube-system", **metadata, "name": name}}


# Files and folders


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder as people have it: manifests, and what is none."""
    more = {**mounting("rules", "/root/config"), "hostNetwork": True}
    files = {
        "a/daemonset.yaml": yaml.safe_dump(daemon_set(SMARTER, "-logtostderr=true", **more)),
        "b/rules.json": json.dumps(config_map("rules", **{"conf.yaml": RULES})),
        "b/service.yml": "apiVersion: v1\nkind: Service\nmetadata: {name: a}\n",
        "b/patch.yaml": "apiVersion: apps/v1\nkind: DaemonSet\nmetadata: {name: peer}\n",
        "b/template.yaml": "a: {{ .Values.a }}\n",
        "b/list.yaml": "- 1\n",
        "b/README.md": "a: [",
        ".git/config.yaml": "a: [",
    }
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    os.mkfifo(tmp_path / "b/pipe.yaml")
    return tmp_path


def test_a_folder_is_one_input(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert 0 == main([str(folder)])
    out, err = capsys.readouterr()
    assert "devicematch: ^snd$" in out
    assert "* DaemonSet, Service: not taken over" in out
    lines = [line.removeprefix(f"deviceplugin migrate: {folder}/") for line in err.splitlines()]
    assert ["b/list.yaml: document 1: is not a mapping with keys: skipped"] == lines[:1]
    assert "b/pipe.yaml: is not a file: skipped" == lines[1]
    assert lines[2].startswith("b/template.yaml:1: ")
    assert lines[2].endswith("a Helm template has to be rendered first: skipped")
    assert lines[3:] == [
        "b/patch.yaml: document 1: DaemonSet peer: spec.template.spec: is missing: skipped"
    ]


def test_several_files_are_one_input(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = [str(folder / "a/daemonset.yaml"), str(folder / "b/rules.json")]
    assert 0 == main(files)
    assert "devicematch: ^snd$" in capsys.readouterr().out
    assert 2 == main([*files, str(folder / "b/list.yaml")])
    assert "list.yaml: document 1: is not a mapping" in capsys.readouterr().err


def test_a_folder_without_documents_is_refused(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "none").mkdir()
    assert 2 == main([str(folder / "none")])
    assert "none: has no documents in *.json, *.yaml, *.yml" in capsys.readouterr().err
    monkeypatch.setattr("deviceplugin_cli.migrate._sources._MOST_FILES", 2)
    assert 2 == main([str(folder)])
    assert "has more than 2 files: name some of them" in capsys.readouterr().err


def test_a_list_from_standard_input_has_what_the_server_fills_in(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    server = {
        "managedFields": [{"manager": "kubectl", "fieldsV1": {"f:spec": {}}}],
        "uid": "u",
        "creationTimestamp": "2026-01-01T00:00:00Z",
        "annotations": {"deprecated.daemonset.template.generation": "1"},
    }
    pod: dict[str, Any] = {
        "restartPolicy": "Always",
        "dnsPolicy": "ClusterFirst",
        "schedulerName": "default-scheduler",
        "terminationGracePeriodSeconds": 30,
        "tolerations": [{"operator": "Exists"}],
        "priorityClassName": "system-node-critical",
        "container": {
            "terminationMessagePath": "/dev/termination-log",
            "terminationMessagePolicy": "File",
            "imagePullPolicy": "IfNotPresent",
        },
    }
    one = {**named("peer", daemon_set(SQUAT, SERIAL, **pod), **server), "status": {"a": 1}}
    one["spec"] |= {"revisionHistoryLimit": 10, "selector": {"matchLabels": {"name": "peer"}}}
    text = yaml.safe_dump({"apiVersion": "v1", "kind": "List", "items": [one]})
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
    assert 0 == main(["-"])
    said = [line for line in capsys.readouterr().out.splitlines() if line.startswith("# * ")]
    assert [
        "# * namespace: kube-system; ours has one of its own, with the labels of pod security"
    ] == said[4:]


def test_an_input_is_named_once(capsys: pytest.CaptureFixture[str]) -> None:
    assert 2 == main([])
    assert 2 == main(["a.yaml", "--from-cluster"])
    assert 2 == main(["-", "-"])
    assert [
        "deviceplugin migrate: name a MANIFEST, or give --from-cluster",
        "deviceplugin migrate: name a MANIFEST, or give --from-cluster",
        "deviceplugin migrate: standard input cannot be both the manifest and --config",
    ] == capsys.readouterr().err.splitlines()


@pytest.mark.parametrize(
    "head", ["", "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\n"]
)
def test_a_kustomization_is_no_helm_values_and_says_what_renders_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], head: str
) -> None:
    path = tmp_path / "my kustomization" / "kustomization.yaml"
    path.parent.mkdir()
    path.write_text(f"{head}resources: [daemonset.yaml]\nimages: [{{name: a, newTag: b}}]\n")
    assert 2 == main([str(path)])
    render = f"kubectl kustomize '{path.parent}' | deviceplugin migrate -"
    last = capsys.readouterr().err.splitlines()[-1]
    assert f"deviceplugin migrate: {path}: names manifests: {render}" == last


# Clusters


class Cluster(Script):
    """An API server with these lists and objects, by their paths. Lists have a page an object."""

    def __init__(self) -> None:
        super().__init__(otherwise=self.find)
        self.lists: dict[str, list[dict[str, Any]]] = {
            "/apis/apps/v1/daemonsets": [],
            "/apis/apps/v1/namespaces/kube-system/daemonsets": [],
            "/api/v1/namespaces/kube-system/pods": [],
        }
        self.objects: dict[str, Any] = {}
        self.forbidden: set[str] = set()

    def find(self, asked: Asked) -> Answer:
        if asked.path in self.forbidden:
            return Answer(403, "no right")
        if asked.path in self.objects:
            return Answer.of(self.objects[asked.path])
        if asked.path not in self.lists:
            return Answer(404, "not found")
        found, at = self.lists[asked.path], int(asked.query.get("continue", 0))
        more = {"continue": str(at + 1)} if at + 1 < len(found) else {}
        bare = [{k: v for k, v in one.items() if k not in {"kind", "apiVersion"}} for one in found]
        metadata = {"resourceVersion": "1", **more}
        return Answer.of({"metadata": metadata, "items": bare[at : at + 1]})

    def add(self, one: dict[str, Any], *nodes: str) -> None:
        """Add a DaemonSet, with a pod on each of these nodes."""
        one["metadata"]["uid"] = uid = one["metadata"]["name"]
        for path in list(self.lists)[:2]:
            self.lists[path].append(one)
        metadata = {"ownerReferences": [{"kind": "DaemonSet", "name": uid, "uid": uid}]}
        self.lists["/api/v1/namespaces/kube-system/pods"] += [
            {"metadata": metadata, "spec": {"nodeName": node}} for node in nodes
        ]


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    """Return an API server that the kubeconfig names."""
    with running(Cluster()) as server:
        config = {
            "current-context": "c",
            "contexts": [{"name": "c", "context": {"cluster": "c"}}],
            "clusters": [{"name": "c", "cluster": {"server": server.url}}],
        }
        (tmp_path / "config").write_text(yaml.safe_dump(config))
        monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
        yield server


def seen(capsys: pytest.CaptureFixture[str]) -> tuple[str, list[str]]:
    out, err = capsys.readouterr()
    return out, [line.removeprefix("deviceplugin migrate: ") for line in err.splitlines()]


def smarter(name: str = "smarter") -> dict[str, Any]:
    more = mounting("rules", "/root/config")
    more["volumes"].append(DEVICES)
    return named(name, daemon_set(SMARTER, **more))


def test_all_device_plugins_of_a_cluster_are_shown(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.add(smarter(), "n2", "n1")
    cluster.add(named("other", daemon_set("example.com/other", volumes=[DEVICES])))
    ours = named("ours", daemon_set("example.com/gpu-device-plugin", volumes=[DEVICES]))
    ours["metadata"]["labels"] = {"app.kubernetes.io/part-of": "device-plugins"}
    cluster.add(ours)
    cluster.add(named("proxy", daemon_set("example.com/kube-proxy")), "n1")
    cluster.objects["/api/v1/namespaces/kube-system/configmaps/rules"] = {
        key: one
        for key, one in named("rules", config_map("rules", **{"conf.yaml": RULES})).items()
        if key != "kind"
    }
    assert 0 == main(["--from-cluster"])
    out, lines = seen(capsys)
    assert [
        "DaemonSet kube-system/smarter: known; on 2 nodes: n1, n2",
        "DaemonSet kube-system/other: not known; on no node",
        "DaemonSet kube-system/ours: ours; on no node",
    ] == lines
    assert "devicematch: ^snd$" in out
    assert {"GET"} == {one.method for one in cluster.asked}


def test_one_namespace_and_one_daemon_set_are_chosen(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.add(named("squat", daemon_set(SQUAT, SERIAL)), *(f"n{index:02}" for index in range(12)))
    cluster.add(named("fpga", daemon_set("intel-fpga-plugin", env={"NODE": "$(ABSENT)"})))
    assert 0 == main(["--from-cluster", "kube-system", "--name=squat"])
    out, (line, _) = seen(capsys)
    assert line.endswith(
        "squat: known; on 12 nodes: n00, n01, n02, n03, n04, n05, n06, n07, n08, n09 and 2 more"
    )
    assert "/dev/ttyUSB*" in out
    assert "# cluster: DaemonSet kube-system/squat: containers[0]: taken for" in out
    assert "* DaemonSet: not taken over" in out
    assert "/apis/apps/v1/daemonsets" not in {one.path for one in cluster.asked}


def test_what_an_operator_has_made_is_not_migrated_beside_its_object(cluster: Cluster) -> None:
    policy = {"metadata": {"name": "p", "uid": "p"}, "spec": {}}
    cluster.objects["/apis/nvidia.com"] = {"preferredVersion": {"version": "v9"}}
    cluster.lists["/apis/nvidia.com/v9/clusterpolicies"] = [policy]
    owner = [{"apiVersion": "nvidia.com/v9", "kind": "ClusterPolicy", "name": "p", "uid": "p"}]
    cluster.add(named("made", daemon_set(SQUAT, SERIAL), ownerReferences=owner))
    cluster.add(named("squat", daemon_set(SQUAT, SERIAL)))
    api = ApiServer(cluster.url)
    survey = read_cluster(api, Reader(api, Progress(io.StringIO())), "", lambda _: True)
    assert [
        "ClusterPolicy p: known",
        "DaemonSet kube-system/made: made by ClusterPolicy p; on no node",
        "DaemonSet kube-system/squat: known; on no node",
    ] == survey.seen
    assert ["ClusterPolicy", "DaemonSet"] == [one["kind"] for _, one in survey.documents]


def test_what_may_not_be_read_is_a_line_each(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.add(smarter())
    cluster.objects["/apis/amd.com"] = {"preferredVersion": {"version": "v1alpha1"}}
    cluster.forbidden = {
        "/apis/amd.com/v1alpha1/deviceconfigs",
        "/api/v1/namespaces/kube-system/pods",
        "/api/v1/namespaces/kube-system/configmaps/rules",
    }
    assert 2 == main(["--from-cluster"])
    _, lines = seen(capsys)
    no = "the API server answers 403: no right"
    assert [
        f"DeviceConfig objects: needs list deviceconfigs.amd.com: {no}",
        f"DaemonSet kube-system/smarter: known; its nodes are not known: needs list pods: {no}",
        f"ConfigMap kube-system/rules: needs get configmaps: {no}",
    ] == lines[:3]
    cluster.forbidden = {"/apis/apps/v1/daemonsets"}
    assert 1 == main(["--from-cluster"])
    assert [f"needs list daemonsets.apps: {no}"] == seen(capsys)[1]


def test_a_cluster_that_does_not_answer_is_said(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    del cluster.lists["/apis/apps/v1/daemonsets"]
    assert 1 == main(["--from-cluster"])
    assert ["the API server answers 404: not found"] == seen(capsys)[1]
    assert 2 == main(["--from-cluster", "--context=absent"])
    assert 2 == main(["--from-cluster", "kube-system"])
    assert "has no DaemonSet and no Helm values" in capsys.readouterr().err
