"""The components and overlays for platforms are rendered, and do what their page says."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from manifests.deployment_policy import problems
from manifests.kustomize import Manifest, in_order, overlay, render, render_by_kustomize

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "common/docs/platforms.md").read_text()
OVERLAYS = dict(
    re.findall(r"^```yaml\n# (\w+)/kustomization\.yaml\n(.+?)^```$", PAGE, re.MULTILINE | re.DOTALL)
)
SCC = yaml.safe_load((ROOT / "deployments/components/openshift/scc.yaml").read_text())
FORBIDDEN = ("HostIPC", "HostNetwork", "HostPID", "HostPorts", "PrivilegedContainer")
PLUGINS = sorted(path.parent.name for path in ROOT.glob("deployments/*/config.yaml"))


def of_kind(manifests: list[Manifest], kind: str) -> Any:
    return next(one for one in manifests if one["kind"] == kind)


def pod(manifests: list[Manifest]) -> Any:
    return of_kind(manifests, "DaemonSet")["spec"]["template"]["spec"]


def directories(manifests: list[Manifest]) -> set[str]:
    """Return the directories of the host that are mounted."""
    return {one["hostPath"]["path"] for one in pod(manifests)["volumes"] if "hostPath" in one}


def has_own_scc(manifests: list[Manifest]) -> bool:
    name = "gopher-device-plugin"
    role, binding = of_kind(manifests, "Role"), of_kind(manifests, "RoleBinding")
    return bool(
        name == of_kind(manifests, "SecurityContextConstraints")["metadata"]["name"]
        and [name] == role["rules"][0]["resourceNames"]
        and f"{name}:scc" == role["metadata"]["name"] == binding["roleRef"]["name"]
        and [{"kind": "ServiceAccount", "name": name, "namespace": name}] == binding["subjects"]
    )


FIXED = "/var/lib/kubelet/device-plugins"
SNAP = "/var/snap/microk8s/common/var/lib/kubelet"
EXPECTED: dict[str, Callable[[list[Manifest]], bool]] = {
    "k0s": lambda m: {FIXED, "/var/lib/k0s/kubelet/pod-resources"} < directories(m),
    "microk8s": lambda m: {FIXED, f"{SNAP}/pod-resources"} < directories(m),
    "talos": lambda m: "/var/cdi" in directories(m) and "/var/run/cdi" not in directories(m),
    "bottlerocket": lambda m: "container_t" == pod(m)["securityContext"]["seLinuxOptions"]["type"],
    "openshift": has_own_scc,
}


@pytest.mark.parametrize("platform", EXPECTED)
def test_an_overlay_of_the_page_is_rendered_and_does_what_it_says(
    platform: str, tmp_path: Path
) -> None:
    (tmp_path / "device-plugins").symlink_to(ROOT)
    place = tmp_path / "mine"
    place.mkdir()
    (place / "kustomization.yaml").write_text(OVERLAYS[platform])
    manifests = render_by_kustomize(place)
    if manifests is None:
        pytest.skip("no kustomize")
    assert EXPECTED[platform](manifests)
    name = of_kind(manifests, "DaemonSet")["metadata"]["name"]
    selinux = "container_t" if platform == "bottlerocket" else "container_device_plugin_t"
    assert [] == problems([*manifests], name, selinux=selinux)


def test_every_overlay_of_the_page_is_tried() -> None:
    assert set(EXPECTED) == set(OVERLAYS)


def test_what_the_page_says_is_added_is_there() -> None:
    rows = re.findall(r"^\| [^|]+ \| \[`([\w-]+)`\]\(#[\w-]+\) \| \w+", PAGE, re.MULTILINE)
    assert ["kubelet-root", "microk8s", "bottlerocket", "openshift"] == rows
    for component in rows:
        assert (ROOT / "deployments/components" / component / "kustomization.yaml").exists()


@pytest.mark.parametrize("plugin", PLUGINS)
def test_the_scc_allows_what_a_plugin_is_with_every_sidecar_and_no_more(
    plugin: str, tmp_path: Path
) -> None:
    place = overlay(tmp_path, plugin, "events", "evict", "startup-taint", "openshift")
    manifests = render(place)
    rendered = render_by_kustomize(place)
    assert rendered is None or in_order(rendered) == in_order(manifests)
    spec = pod(manifests)
    kinds = {key for volume in spec["volumes"] for key in volume if key != "name"}
    assert {"configMap", "hostPath", "projected"} <= kinds <= set(SCC["volumes"])
    assert {"configMap", "downwardAPI", "emptyDir", "hostPath", "projected"} == set(SCC["volumes"])
    assert "RuntimeDefault" == spec["securityContext"]["seccompProfile"]["type"]
    assert ["runtime/default"] == SCC["seccompProfiles"]
    for container in [*spec["containers"], *spec.get("initContainers", ())]:
        context = container["securityContext"]
        assert SCC["requiredDropCapabilities"] == context["capabilities"]["drop"]
        assert SCC["readOnlyRootFilesystem"] == context["readOnlyRootFilesystem"]
        assert SCC["allowPrivilegeEscalation"] == context["allowPrivilegeEscalation"]
        assert SCC["allowPrivilegedContainer"] == context["privileged"]


def test_the_scc_allows_nothing_of_the_host_but_directories_and_nobody_by_name() -> None:
    assert [False] * 5 == [SCC[f"allow{what}"] for what in FORBIDDEN]
    assert [[], [], [], []] == [
        SCC[key] for key in ("users", "groups", "allowedCapabilities", "defaultAddCapabilities")
    ]


def test_two_plugins_have_an_scc_each(tmp_path: Path) -> None:
    names = []
    for plugin in ("gopher", "gpu"):
        (tmp_path / plugin).mkdir()
        manifests = render(overlay(tmp_path / plugin, plugin, "openshift", "events"))
        names.append(of_kind(manifests, "SecurityContextConstraints")["metadata"]["name"])
        assert (
            f"{plugin}-device-plugin:events"
            == of_kind(manifests, "ClusterRole")["metadata"]["name"]
        )
    assert ["gopher-device-plugin", "gpu-device-plugin"] == names
