"""The overlays of the cookbook are rendered, and do what the page says."""

import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from manifests.deployment_policy import problems
from manifests.helm import template, why_not, write_chart
from manifests.kustomize import Manifest, render_by_kustomize

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "common/docs/overlays.md").read_text()
BLOCK = re.compile(r"^```yaml\n# ([\w.]+)\n(.+?)^```$", re.MULTILINE | re.DOTALL)
SECTIONS = {
    title: dict(BLOCK.findall(text))
    for title, text in re.findall(r"^## (.+?)\n(.+?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL)
}
KUSTOMIZED = [title for title, files in SECTIONS.items() if "kustomization.yaml" in files]
URL = "https://git.example.com/hw/device-plugins"


def build(folder: Path, files: dict[str, str]) -> list[Manifest]:
    """Return what the real kustomize makes of files in a folder beside a checkout."""
    place = folder / "mine"
    place.mkdir()
    (folder / "device-plugins").symlink_to(ROOT)
    for name, content in files.items():
        (place / name).write_text(content)
    rendered = render_by_kustomize(place)
    if rendered is None:
        pytest.skip("no kustomize")
    return rendered


def of_kind(manifests: list[Manifest], kind: str) -> Any:
    return next(one for one in manifests if one["kind"] == kind)


def pod(manifests: list[Manifest]) -> Any:
    return of_kind(manifests, "DaemonSet")["spec"]["template"]["spec"]


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


def own(manifests: list[Manifest]) -> Any:
    return container(manifests, "device-plugin")


def container(manifests: list[Manifest], name: str) -> Any:
    return next(one for one in pod(manifests)["containers"] if one["name"] == name)


_ASKED = {"--node=$(NODE_NAME)", "--plugin=https://127.0.0.1:9494"}
_ENDPOINTS = "podMetricsEndpoints"
EXPECTED: dict[str, Callable[[list[Manifest]], bool]] = {
    "Your own devices": lambda m: "scanner" in of_kind(m, "ConfigMap")["data"]["config.yaml"],
    "Several plugins in one process": lambda m: (
        {"gpu", "rdma"} == {*yaml.safe_load(of_kind(m, "ConfigMap")["data"]["config.yaml"])}
    ),
    "Some nodes only": lambda m: (
        {"kubernetes.io/os": "linux", "example.com/gpu": "true"} == pod(m)["nodeSelector"]
        and [{"key": "nvidia.com/gpu", "operator": "Exists"}] == pod(m)["tolerations"]
    ),
    "A runtime class": lambda m: "nvidia" == pod(m)["runtimeClassName"],
    "Requests and limits": lambda m: (
        {
            "requests": {"cpu": "10m", "memory": "128Mi"},
            "limits": {"memory": "512Mi"},
        }
        == own(m)["resources"]
    ),
    "One file for different GPU nodes": lambda m: any(
        "timeSlicing" in one["data"]["config.yaml"] for one in m if one["kind"] == "ConfigMap"
    ),
    "A registry, and a digest": lambda m: (
        f"registry.example.com/hw/gopher-device-plugin@sha256:{'0' * 64}" == own(m)["image"]
        and [{"name": "registry-login"}] == pod(m)["imagePullSecrets"]
    ),
    "TLS and a token": lambda m: (
        "HTTPS" == own(m)["readinessProbe"]["httpGet"]["scheme"]
        and _ASKED <= {*container(m, "events")["args"]}
        and {"https"} == {one["scheme"] for one in of_kind(m, "PodMonitor")["spec"][_ENDPOINTS]}
    ),
    "Without a checkout": lambda m: own(m)["image"].startswith("gpu-device-plugin:"),
}


@pytest.mark.parametrize("title", KUSTOMIZED)
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
    plugin = own(manifests)["image"].rpartition("/")[2].partition("-")[0]
    allowed = {"/dev", "/sys"} if "one process" in title else ()
    found = problems([*manifests], f"{plugin}-device-plugin", allowed)
    assert [] == [one for one in found if not any(name in one for name in changed)]


def test_the_plugin_takes_the_devices_of_the_page(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(SECTIONS["Your own devices"]["config.yaml"])
    program = Path(sys.executable).with_name("generic-device-plugin")
    subprocess.run([program, "check", path], check=True)


def test_flux_is_asked_for_what_can_be_rendered(tmp_path: Path) -> None:
    _, wanted = yaml.safe_load_all(SECTIONS["Flux"]["flux.yaml"])
    spec = wanted["spec"]
    overlay = {key: spec[key] for key in ("images", "patches")}
    overlay["resources"] = [f"../device-plugins/{spec['path']}"]
    manifests = build(tmp_path, {"kustomization.yaml": yaml.safe_dump(overlay)})
    assert "nvidia" == pod(manifests)["runtimeClassName"]
    assert own(manifests)["image"].startswith("registry.example.com/hw/gpu-device-plugin:")


def test_argo_cd_is_asked_for_what_can_be_rendered(tmp_path: Path) -> None:
    source = yaml.safe_load(SECTIONS["Argo CD"]["application.yaml"])["spec"]["source"]
    (image,) = source["kustomize"]["images"]
    name, _, new = image.partition("=")
    new_name, _, tag = new.rpartition(":")
    overlay = {
        "resources": [f"../device-plugins/{source['path']}"],
        "images": [{"name": name, "newName": new_name, "newTag": tag}],
    }
    manifests = build(tmp_path, {"kustomization.yaml": yaml.safe_dump(overlay)})
    assert new == own(manifests)["image"]


@pytest.mark.skipif(bool(why_not()), reason=why_not() or "-")
def test_argo_cd_gives_the_chart_values_that_it_takes(tmp_path: Path) -> None:
    source = yaml.safe_load(SECTIONS["Argo CD"]["chart.yaml"])["spec"]["source"]
    values = source["helm"]["valuesObject"]
    manifests = template(write_chart(tmp_path / "chart"), values)
    assert "nvidia" == pod(manifests)["runtimeClassName"]


def test_every_section_is_tried() -> None:
    assert set(SECTIONS) == {*EXPECTED, "Argo CD", "Flux"}
