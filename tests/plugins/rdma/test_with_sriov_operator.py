"""The page on the SR-IOV network operator: its files, the overlay, and what KubeVirt looks for."""

import json
import re
import textwrap
from pathlib import Path

import pytest
import yaml

import deviceplugin_generic
from deviceplugin._config.loading import load
from deviceplugin_rdma import RdmaSettings
from deviceplugin_rdma.entries import Entry, Selector
from manifests.kustomize import container_of, kustomized, pod_of

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "plugins/rdma/docs/with-sriov-operator.md"
BLOCKS = {
    name: textwrap.dedent(text)
    for name, text in re.findall(
        r"^ *```yaml\n *# (\S+)\n(.+?)^ *```$", PAGE.read_text(), re.MULTILINE | re.DOTALL
    )
}


def resource(name: str, **selectors: object) -> dict[str, object]:
    """Return an entry as the operator marshals it: a field without a name has its Go name."""
    known = {**selectors, "IsRdma": False, "needVhostNet": True}
    return {"resourceName": name, "selectors": known, "SelectorObjs": None}


FILES = {
    "worker-0.example.com": {"resourceList": [resource("east", pfNames=["ens1f0#0-3"])]},
    "worker-1": {"resourceList": None},
}


@pytest.mark.parametrize(
    ("node", "expected"),
    [
        (
            "worker-0.example.com",
            (Entry("east", "", (Selector(pf_names=("ens1f0#0-3",), with_vhost=True),)),),
        ),
        ("worker-1", ()),
        ("new", ()),
    ],
)
def test_the_operators_file_of_a_node_is_read_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, node: str, expected: tuple[Entry, ...]
) -> None:
    for name, content in FILES.items():
        (tmp_path / name).write_text(json.dumps(content, separators=(",", ":")))
    monkeypatch.setenv("DP_NODE_NAME", node)
    (tmp_path / "default").write_text("resourceList: []")
    assert expected == load(RdmaSettings, flags={}, file=tmp_path).resources


def test_the_overlay_reads_the_operators_own_config_map(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "device-plugins").symlink_to(ROOT)
    (tmp_path / "mine/kustomization.yaml").write_text(BLOCKS["kustomization.yaml"])
    manifests = kustomized(tmp_path / "mine")
    assert "Namespace" not in {one["kind"] for one in manifests}
    assert {"sriov-network-operator"} == {one["metadata"]["namespace"] for one in manifests}
    volumes = {one["name"]: one for one in pod_of(manifests)["volumes"]}
    mounts = {one["name"]: one["mountPath"] for one in container_of(manifests)["volumeMounts"]}
    given = {one["name"]: one for one in container_of(manifests)["env"]}
    sources = volumes["config-per-node"]["projected"]["sources"]
    items = [{"key": "config.yaml", "path": "default"}]
    own = {"configMap": {"name": "rdma-config", "items": items}}
    assert [own, {"configMap": {"name": "device-plugin-config"}}] == sources
    assert ["resourceList: []"] == [
        one["data"]["config.yaml"] for one in manifests if one.get("data", {}).get("config.yaml")
    ]
    assert mounts["config-per-node"] == given["DP_CONFIG"]["value"]
    assert "spec.nodeName" == given["DP_NODE_NAME"]["valueFrom"]["fieldRef"]["fieldPath"]
    assert "openshift.io" == given["DP_RESOURCE_PREFIX"]["value"]


def test_the_affinity_of_the_page_is_for_the_label_of_the_overlay() -> None:
    (patch,) = re.findall(r"--patch '(.+)'$", PAGE.read_text(), re.MULTILINE)
    affinity = json.loads(patch)["spec"]["template"]["spec"]["affinity"]["nodeAffinity"]
    (term,) = affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    (rule,) = term["matchExpressions"]
    assert "DoesNotExist" == rule["operator"]
    assert f"{rule['key']}: " in BLOCKS["kustomization.yaml"]


def test_the_variable_of_the_page_is_the_one_that_kubevirt_looks_for(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(BLOCKS["config.yaml"])
    assert 0 == deviceplugin_generic.check([str(file)])
    (entry,) = yaml.safe_load(BLOCKS["config.yaml"])["devices"]
    name = f"PCI_RESOURCE_devic.es/{entry['name']}"
    assert {re.sub("[/.]", "_", name).upper(): "{address}"} == entry["env"]
