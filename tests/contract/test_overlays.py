"""The overlays of the cookbook and of the page on platforms are rendered, and do what these say."""

import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

import release
from manifests.deployment_policy import problems
from manifests.expected import PLUGINS
from manifests.helm import template
from manifests.kustomize import Manifest, container_of, kustomized, of_kind, overlay, pod_of, render

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "common/docs/overlays.md").read_text()
PLATFORMS = (ROOT / "common/docs/platforms.md").read_text()
BLOCK = re.compile(r"^```yaml\n# ([\w.]+)\n(.+?)^```$", re.MULTILINE | re.DOTALL)
SECTIONS = {
    title: dict(BLOCK.findall(text))
    for title, text in re.findall(r"^## (.+?)\n(.+?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL)
}
OVERLAYS = dict(
    re.findall(
        r"^```yaml\n# (\w+)/kustomization\.yaml\n(.+?)^```$", PLATFORMS, re.MULTILINE | re.DOTALL
    )
)
URL = "https://git.example.com/hw/device-plugins"


def build(folder: Path, files: dict[str, str]) -> list[Manifest]:
    """Return what the real kustomize makes of files in a folder beside a checkout."""
    place = folder / "mine"
    place.mkdir()
    (folder / "device-plugins").symlink_to(ROOT)
    for name, content in files.items():
        (place / name).write_text(content)
    return kustomized(place)


def at_url(files: dict[str, str], folder: Path) -> dict[str, str]:
    """Let what is fetched from the page's repository come from a copy of this one."""
    if not any(URL in content for content in files.values()):
        return files
    if shutil.which("git") is None:
        pytest.skip("no git")
    remote = folder / "remote"
    shutil.copytree(ROOT / "deployments", remote / "deployments")
    git = ["git", "-C", str(remote), "-c", "user.name=x", "-c", "user.email=x@example.com"]
    tag = re.findall(r"\?ref=(\S+)", "".join(files.values()))[0]
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "x"], ["tag", tag]):
        subprocess.run([*git, *words], check=True)
    return {name: text.replace(URL, f"file://{remote}") for name, text in files.items()}


_ASKED = {"--node=$(NODE_NAME)", "--plugin=https://127.0.0.1:9494"}
_ENDPOINTS = "podMetricsEndpoints"
EXPECTED: dict[str, Callable[[list[Manifest]], bool]] = {
    "Your own devices": lambda m: "scanner" in of_kind(m, "ConfigMap")["data"]["config.yaml"],
    "Several plugins in one process": lambda m: (
        {"gpu", "rdma"} == {*yaml.safe_load(of_kind(m, "ConfigMap")["data"]["config.yaml"])}
    ),
    "Some nodes only": lambda m: (
        {"kubernetes.io/os": "linux", "example.com/gpu": "true"} == pod_of(m)["nodeSelector"]
        and [{"key": "nvidia.com/gpu", "operator": "Exists"}] == pod_of(m)["tolerations"]
    ),
    "A runtime class": lambda m: "nvidia" == pod_of(m)["runtimeClassName"],
    "Requests and limits": lambda m: (
        {
            "requests": {"cpu": "10m", "memory": "128Mi"},
            "limits": {"memory": "512Mi"},
        }
        == container_of(m)["resources"]
    ),
    "One file for different GPU nodes": lambda m: any(
        "timeSlicing" in one["data"]["config.yaml"] for one in m if one["kind"] == "ConfigMap"
    ),
    "A file for each node": lambda m: any(
        "worker-1" in one["data"] for one in m if one["kind"] == "ConfigMap"
    ),
    "A registry, and a digest": lambda m: (
        f"registry.example.com/hw/gopher-device-plugin@sha256:{'0' * 64}"
        == container_of(m)["image"]
        and [{"name": "registry-login"}] == pod_of(m)["imagePullSecrets"]
    ),
    "TLS and a token": lambda m: (
        "HTTPS" == container_of(m)["readinessProbe"]["httpGet"]["scheme"]
        and _ASKED <= {*container_of(m, "events")["args"]}
        and {"https"} == {one["scheme"] for one in of_kind(m, "PodMonitor")["spec"][_ENDPOINTS]}
    ),
    "Without a checkout": lambda m: container_of(m)["image"].startswith("gpu-device-plugin:"),
}


@pytest.mark.parametrize("title", EXPECTED)
def test_an_overlay_is_rendered_and_does_what_it_is_called(title: str, tmp_path: Path) -> None:
    manifests = build(tmp_path, at_url(SECTIONS[title], tmp_path))
    assert EXPECTED[title](manifests)
    spaces = {
        one["metadata"].get("namespace", one["metadata"]["name"])
        for one in manifests
        if not one["kind"].startswith(("ClusterRole", "ValidatingAdmission"))
    }
    assert 1 == len(spaces)
    changed = {"nodeSelector", "tolerations"}
    plugin = container_of(manifests)["image"].rpartition("/")[2].partition("-")[0]
    allowed = {"/dev", "/sys"} if plugin in {"node", "rdma"} else ()
    found = problems(manifests, f"{plugin}-device-plugin", allowed)
    assert [] == [one for one in found if not any(name in one for name in changed)]


def test_the_plugin_takes_the_devices_of_the_page(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(SECTIONS["Your own devices"]["config.yaml"])
    program = Path(sys.executable).with_name("generic-device-plugin")
    subprocess.run([program, "check", path], check=True)


def test_flux_and_argo_cd_are_asked_for_what_can_be_rendered(tmp_path: Path) -> None:
    _, wanted = yaml.safe_load_all(SECTIONS["Flux"]["flux.yaml"])
    flux = {key: wanted["spec"][key] for key in ("images", "patches")}
    flux["resources"] = [f"../device-plugins/{wanted['spec']['path']}"]
    (tmp_path / "flux").mkdir()
    manifests = build(tmp_path / "flux", {"kustomization.yaml": yaml.safe_dump(flux)})
    assert "nvidia" == pod_of(manifests)["runtimeClassName"]
    assert container_of(manifests)["image"].startswith("registry.example.com/hw/gpu-device-plugin:")

    source = yaml.safe_load(SECTIONS["Argo CD"]["application.yaml"])["spec"]["source"]
    (image,) = source["kustomize"]["images"]
    name, _, new = image.partition("=")
    new_name, _, tag = new.rpartition(":")
    argo = {
        "resources": [f"../device-plugins/{source['path']}"],
        "images": [{"name": name, "newName": new_name, "newTag": tag}],
    }
    (tmp_path / "argo").mkdir()
    manifests = build(tmp_path / "argo", {"kustomization.yaml": yaml.safe_dump(argo)})
    assert new == container_of(manifests)["image"]


def test_argo_cd_gives_the_chart_values_that_it_takes(tmp_path: Path) -> None:
    source = yaml.safe_load(SECTIONS["Argo CD"]["chart.yaml"])["spec"]["source"]
    values = source["helm"]["valuesObject"]
    release.write_chart(tmp_path / "chart")
    manifests = template(tmp_path / "chart", values)
    assert "nvidia" == pod_of(manifests)["runtimeClassName"]


# Platforms

SCC = yaml.safe_load((ROOT / "deployments/components/openshift/scc.yaml").read_text())
FORBIDDEN = ("HostIPC", "HostNetwork", "HostPID", "HostPorts", "PrivilegedContainer")


def directories(manifests: list[Manifest]) -> set[str]:
    """Return the directories of the host that are mounted."""
    return {one["hostPath"]["path"] for one in pod_of(manifests)["volumes"] if "hostPath" in one}


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
OF_PLATFORMS: dict[str, Callable[[list[Manifest]], bool]] = {
    "k0s": lambda m: {FIXED, "/var/lib/k0s/kubelet/pod-resources"} < directories(m),
    "microk8s": lambda m: {FIXED, f"{SNAP}/pod-resources"} < directories(m),
    "talos": lambda m: "/var/cdi" in directories(m) and "/var/run/cdi" not in directories(m),
    "bottlerocket": lambda m: (
        "container_t" == pod_of(m)["securityContext"]["seLinuxOptions"]["type"]
    ),
    "openshift": has_own_scc,
}


@pytest.mark.parametrize("platform", OF_PLATFORMS)
def test_an_overlay_for_a_platform_is_rendered_and_does_what_it_says(
    platform: str, tmp_path: Path
) -> None:
    manifests = build(tmp_path, {"kustomization.yaml": OVERLAYS[platform]})
    assert OF_PLATFORMS[platform](manifests)
    name = of_kind(manifests, "DaemonSet")["metadata"]["name"]
    selinux = "container_t" if platform == "bottlerocket" else "container_device_plugin_t"
    assert [] == problems(manifests, name, selinux=selinux)


def test_every_section_and_every_overlay_is_tried() -> None:
    assert set(SECTIONS) == {*EXPECTED, "Argo CD", "Flux"}
    assert set(OVERLAYS) == set(OF_PLATFORMS)


def test_what_the_page_says_is_added_is_there() -> None:
    rows = re.findall(r"^\| [^|]+ \| \[`([\w-]+)`\]\(#[\w-]+\) \| \w+", PLATFORMS, re.MULTILINE)
    assert ["kubelet-root", "microk8s", "bottlerocket", "openshift"] == rows
    for component in rows:
        assert (ROOT / "deployments/components" / component / "kustomization.yaml").exists()


@pytest.mark.parametrize("plugin", PLUGINS)
def test_the_scc_allows_what_a_plugin_is_with_every_sidecar_and_no_more(
    plugin: str, tmp_path: Path
) -> None:
    manifests = render(
        overlay(tmp_path, plugin, "events", "evict", "startup-taint", "node-labels", "openshift")
    )
    assert f"{plugin}-device-plugin" == of_kind(manifests, SCC["kind"])["metadata"]["name"]
    spec = pod_of(manifests)
    kinds = {key for volume in spec["volumes"] for key in volume if key != "name"}
    assert {"configMap", "emptyDir", "hostPath", "projected"} <= kinds <= set(SCC["volumes"])
    assert {"configMap", "downwardAPI", "emptyDir", "hostPath", "projected"} == set(SCC["volumes"])
    assert "RuntimeDefault" == spec["securityContext"]["seccompProfile"]["type"]
    for container in [*spec["containers"], *spec.get("initContainers", ())]:
        context = container["securityContext"]
        assert SCC["requiredDropCapabilities"] == context["capabilities"]["drop"]
        assert SCC["allowPrivilegedContainer"] == context["privileged"]
        for key in ("readOnlyRootFilesystem", "allowPrivilegeEscalation"):
            assert SCC[key] == context[key]


def test_the_scc_allows_nothing_of_the_host_but_directories_and_nobody_by_name() -> None:
    assert [False] * 5 == [SCC[f"allow{what}"] for what in FORBIDDEN]
    assert [[], [], [], []] == [
        SCC[key] for key in ("users", "groups", "allowedCapabilities", "defaultAddCapabilities")
    ]
    assert ["runtime/default"] == SCC["seccompProfiles"]
