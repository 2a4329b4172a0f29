"""``build/to_cluster.py``: from a checkout to devices on a node, in clusters of every kind."""

import ast
import json
import os
import platform
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import to_cluster
from cluster.kinds import NODE
from cluster.pod import NAME
from cluster.small_cluster import PLUGINS, SHELL, SmallCluster, running, why_not
from clusters import KINDS
from patience import PATIENCE

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
PAGE = (ROOT / "build/README.md").read_text()
OWN = to_cluster.ARCHITECTURES[platform.machine()]
OTHER = "arm64" if OWN == "amd64" else "amd64"
ARCHIVE = "dist/images/gopher-device-plugin-0.1.0.tar"
FOREIGN = f"dist/images/{OTHER}/gopher-device-plugin-0.1.0.tar"
Said = tuple[int, str, str]
Run = Callable[..., Said]


def node(name: str = "n1", address: str = "203.0.113.7", **facts: Any) -> dict[str, Any]:
    """Return a node object as the API server has it."""
    about = {
        "architecture": facts.get("arch", OWN),
        "kubeletVersion": facts.get("kubelet", "v1.36"),
    }
    about["containerRuntimeVersion"] = facts.get("runtime", "containerd://2.1.4")
    return {
        "metadata": {"name": name, "labels": facts.get("labels", {})},
        "spec": {"providerID": facts["provider"]} if "provider" in facts else {},
        "status": {
            "addresses": [{"type": "InternalIP", "address": address}],
            "nodeInfo": about,
            "allocatable": {"cpu": "4", **facts.get("devices", {})},
        },
    }


def program(place: Path, name: str, text: str) -> None:
    (place / name).write_text(f"#!/bin/sh\n{text}\n")
    (place / name).chmod(0o755)


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Run:
    """Return what runs it on nodes, with no programs but those named."""

    def it(nodes: list[dict[str, Any]], *words: str, programs: str = "ssh") -> Said:
        (tmp_path / "nodes").write_text(json.dumps({"items": nodes}))
        program(tmp_path, "kubectl", f"/bin/cat {tmp_path}/nodes")
        for name in programs.split():
            program(tmp_path, name, "")
        status = to_cluster.main(words)
        said = capfd.readouterr()
        return status, said.out, said.err

    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("IMAGE_TOOL", "docker")
    monkeypatch.setattr(to_cluster, "TARGET", tmp_path / "dist")
    return it


def commands(said: str) -> list[str]:
    """Return the commands that were printed, but for that which builds and that which applies."""
    found: list[str] = re.findall(r"^\+ (?!build )(?!kubectl apply )(.+)$", said, re.MULTILINE)
    return found


REMOTE = f"ssh 203.0.113.7 sudo {{}} < {ARCHIVE}"
CLUSTERS: dict[str, tuple[dict[str, Any], str]] = {
    "kind": (
        {"provider": "kind://docker/dev/dev-control-plane"},
        f"kind load image-archive {ARCHIVE} --name dev",
    ),
    "k3d": (
        {"provider": "k3s://k3d-my-lab-server-0", "kubelet": "v1.34.1+k3s1"},
        f"k3d image import {ARCHIVE} --cluster my-lab",
    ),
    "minikube": (
        {"labels": {"minikube.k8s.io/name": "minikube"}, "runtime": "docker://28.4"},
        f"minikube image load {ARCHIVE} --profile minikube",
    ),
    "Docker Desktop": (
        {"name": "docker-desktop", "runtime": "docker://28.4"},
        f"docker load --input {ARCHIVE}",
    ),
    "MicroK8s": (
        {"labels": {"microk8s.io/cluster": "true"}},
        REMOTE.format("microk8s ctr image import -"),
    ),
    "k3s": ({"kubelet": "v1.34.1+k3s1"}, REMOTE.format("k3s ctr images import -")),
    "RKE2": (
        {"kubelet": "v1.34.1+rke2r1"},
        REMOTE.format(
            "/var/lib/rancher/rke2/bin/ctr --address /run/k3s/containerd/containerd.sock "
            "--namespace k8s.io images import -"
        ),
    ),
    "k0s": (
        {"kubelet": "v1.34.1+k0s"},
        REMOTE.format("k0s ctr --namespace k8s.io images import -"),
    ),
    "CRI-O": ({"runtime": "cri-o://1.36.3"}, REMOTE.format("podman load")),
    "containerd": ({}, REMOTE.format("ctr --namespace k8s.io images import -")),
}


@pytest.mark.parametrize("kind", KINDS)
def test_an_image_comes_to_each_kind_of_cluster_by_its_own_command(kind: str, run: Run) -> None:
    facts, expected = CLUSTERS[kind]
    tool = expected.split()[0]
    status, said, err = run([node(**facts)], "gopher", "--dry-run", programs=tool)
    assert (0, "", [expected]) == (status, err, commands(said))
    assert said.startswith(f"the cluster is {kind}: {facts.get('name', 'n1')} has ")
    applied = re.findall(r"^\+ kubectl apply --kustomize=(.+)$", said, re.MULTILINE)
    component = KINDS[kind].component
    if not (component or KINDS[kind].prefix):
        assert ["deployments/gopher"] == applied
        return
    made = json.loads(Path(applied[0], "kustomization.yaml").read_text())
    if prefix := KINDS[kind].prefix:
        name = "gopher-device-plugin"
        assert f"+ build {prefix}{name} for " in said
        assert [{"name": name, "newName": f"{prefix}{name}"}] == made["images"]
        return
    names = [Path(applied[0], one).resolve() for one in made["resources"] + made["components"]]
    assert [ROOT / "deployments/gopher", ROOT / "deployments/components" / component] == names


def test_every_kind_is_on_the_page() -> None:
    table = PAGE.partition("| Cluster | ")[2].partition("\n\n")[0]
    assert [*KINDS, "a registry"] == re.findall(r"^\| (.+?) \|", table, re.MULTILINE)


def test_each_node_gets_the_image_for_its_architecture_and_this_machine_needs_no_ssh(
    run: Run,
) -> None:
    nodes = [
        node("here", "127.0.0.1"),
        node("board", "203.0.113.8", arch=OTHER),
        node("old", "203.0.113.9", arch="s390x"),
    ]
    status, said, err = run(nodes, "gopher", "--user", "pi", "--dry-run")
    sudo = "" if os.geteuid() == 0 else "sudo "
    words = "ctr --namespace k8s.io images import -"
    ssh = f"ssh pi@203.0.113.8 sudo {words} < {FOREIGN}"
    assert (0, "", [f"{sudo}{words} < {ARCHIVE}", ssh]) == (status, err, commands(said))
    assert "node old is left out: no image is for s390x\n" in said
    assert f"+ build gopher-device-plugin for {OTHER} by docker: {FOREIGN}\n" in said
    _, said, _ = run(nodes[1:2], "gopher", "--user=root", "--dry-run")
    assert [f"ssh root@203.0.113.8 {words} < {FOREIGN}"] == commands(said)
    _, said, _ = run([node("six", "::1")], "gopher", "--dry-run")
    assert [f"{sudo}{words} < {ARCHIVE}"] == commands(said)


def test_a_registry_gets_the_image_and_the_deployment_names_it(run: Run, tmp_path: Path) -> None:
    registry = "registry.example.com/hw"
    crio = node(runtime="cri-o://1.36.1")
    status, said, _ = run([crio], "gopher", f"--registry={registry}/", "--dry-run")
    assert (0, [f"docker push {registry}/gopher-device-plugin:0.1.0"]) == (status, commands(said))
    made = json.loads((tmp_path / "dist/gopher/kustomization.yaml").read_text())
    name = "gopher-device-plugin"
    assert [{"name": name, "newName": f"{registry}/{name}"}] == made["images"]


SAVES = "[ $1 != save ] || : > $3"
BOTH = [node(), node("n2", arch=OTHER)]
FAILURES: dict[str, tuple[list[dict[str, Any]], str, str]] = {
    "node n1: runtime docker://28.4: no import is known: use --registry": (
        [node(runtime="docker://28.4")],
        "gopher",
        "",
    ),
    "the cluster has no node of amd64 or arm64": ([], "gopher", ""),
    "ssh is not installed: it brings the image to the nodes": ([node()], "gopher", ""),
    "kind is not installed: it brings the image to the nodes": (
        [node(provider="kind://docker/kind/kind-worker")],
        "gopher",
        "",
    ),
    "nodes of amd64 and arm64 need an image for both: see build/README.md": (
        BOTH,
        "gopher --registry=a.example.com --dry-run",
        "",
    ),
    "docker ended with status 3, see above; without a registry, see build/README.md": (
        [node()],
        "gopher",
        "exit 3",
    ),
    f"`ssh 203.0.113.7 sudo ctr --namespace k8s.io images import - < {ARCHIVE}` ended with status "
    "1, see above; where ssh or sudo ask for a password, import it there yourself": (
        [node()],
        "gopher",
        SAVES,
    ),
}


@pytest.mark.parametrize("message", FAILURES)
def test_a_step_that_fails_is_told_in_a_line(
    message: str, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes, line, docker = FAILURES[message]
    program(tmp_path, "docker", docker or SAVES)
    if docker:
        program(tmp_path, "ssh", "exit 1")
    monkeypatch.setattr("images.TARGET", tmp_path / "images")
    status, _, err = run(nodes, *line.split(), programs="")
    assert (1, f"to_cluster.py: {message}") == (
        status,
        err.strip().replace(str(tmp_path / "images"), "dist/images"),
    )


def test_a_tool_that_is_named_and_not_there_or_a_kubectl_that_says_nonsense_is_a_line(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    status, _, err = run([node(address="127.0.0.1")], "gopher")
    assert (1, "to_cluster.py: [Errno 2] No such file or directory: 'docker'\n") == (status, err)
    program(tmp_path, "kubectl", "echo no JSON")
    assert 1 == to_cluster.main(["gopher"])
    assert "to_cluster.py: Expecting value" in capfd.readouterr().err
    program(tmp_path, "kubectl", "echo 'nobody listens' >&2; exit 1")
    assert 1 == to_cluster.main(["gopher"])
    assert "to_cluster.py: kubectl get nodes: nobody listens\n" == capfd.readouterr().err
    monkeypatch.setenv("PATH", "")
    assert 1 == to_cluster.main(["gopher"])
    assert "to_cluster.py: kubectl is not installed\n" == capfd.readouterr().err


WRONG = {
    "gophr": "argument PLUGIN: 'gophr' is not a plugin: did you mean gopher?",
    "zzz": "argument PLUGIN: 'zzz' is not a plugin: there are amd, fpga, generic, ",
    "gopher build": f"{ROOT}/build: there is no kustomization.yaml in it",
    "gopher --registry https://a.example.com": "--registry https://a.example.com: write it as ",
}


@pytest.mark.parametrize("line", WRONG)
def test_a_wrong_command_line_is_refused_before_anything_is_asked(
    line: str, run: Run, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(ROOT)
    with pytest.raises(SystemExit, match="2"):
        run([], *line.split())
    assert f"error: {WRONG[line]}" in capfd.readouterr().err


def test_an_old_python_is_told_and_nothing_in_its_way_is_newer() -> None:
    source = Path(to_cluster.__file__).read_text()
    ast.parse(source, feature_version=(3, 8))
    before = source.partition("import argparse")[0]
    old = before.replace("import sys", "import sys; sys.version_info = (3, 10)")
    done = subprocess.run([sys.executable, "-c", old], capture_output=True, text=True, check=False)
    assert (1, "to_cluster.py: it needs Python 3.11 ") == (done.returncode, done.stderr[:36])


@pytest.fixture
def there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[SmallCluster], None]:
    """Return what has commands use a cluster, with stand-ins for docker, ctr and sudo."""

    def use(cluster: SmallCluster) -> None:
        facts = node(address="127.0.0.1")["status"]
        cluster.store.change(NODE, "", NAME, lambda found: found["status"].update(facts))
        for name in ("docker", "ctr"):
            program(tmp_path, name, f'echo "{name} $*" >> {tmp_path}/log; {SAVES}')
        program(tmp_path, "sudo", '"$@"')
        for name, value in {"IMAGE_TOOL": "docker", **cluster.environment}.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
        monkeypatch.setattr("images.TARGET", tmp_path / "images")
        monkeypatch.setattr(to_cluster, "PATIENCE", PATIENCE)

    return use


needs_kubectl = pytest.mark.skipif(bool(why_not()), reason=why_not() or "-")


@needs_kubectl
@pytest.mark.slow  # kubectl for each step, and a plugin
def test_one_command_leads_from_a_checkout_to_devices_and_another_one_to_a_new_image(
    there: Callable[[SmallCluster], None],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    def it(plugin: str) -> str:
        assert 0 == to_cluster.main([plugin])
        said = capfd.readouterr().out.replace(str(tmp_path / "images"), "dist/images")
        said = re.sub(r"^Waiting for .*\n", "", said, flags=re.MULTILINE)
        return said.replace("+ ctr", "+ sudo ctr").replace(f" {OWN} ", " amd64 ")

    with running(PLUGINS) as cluster:
        there(cluster)
        cluster.node.path("/etc/gophers").mkdir(parents=True)
        for name in ("alice", "bob"):
            cluster.node.path(f"/etc/gophers/{name}").touch()
        assert PAGE.partition("$ build/to_cluster.py gopher\n")[2].startswith(it("gopher"))
        with monkeypatch.context() as patched:
            patched.setattr(to_cluster, "PATIENCE", 0.0)  # nothing is new
            assert "+ kubectl rollout restart --namespace=gopher-device-plugin d" in it("gopher")
        first = README.partition("$ build/to_cluster.py simulated\n")[2].partition("```")[0]
        shown = [*first.splitlines(), "node-1               example.com/gopher             2"]
        assert {*shown} == {*it("simulated").splitlines()[-len(shown) :]}
    log = (tmp_path / "log").read_text().splitlines()
    assert ["docker build", "docker save", "ctr --namespace"] * 3 == [
        " ".join(line.split()[:2]) for line in log
    ]


@needs_kubectl
@pytest.mark.slow  # kubectl for each step
def test_pods_that_do_not_start_are_named_with_their_reason(
    there: Callable[[SmallCluster], None],
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(to_cluster, "ROLL_OUT", "2s")
    with running(SHELL) as cluster:
        there(cluster)
        assert 1 == to_cluster.main(["gopher"])
    said = capfd.readouterr().err
    assert "--timeout=2s` ended with status 1, see above\n  gopher-device-plugin-" in said
    assert 'on node-1: ErrImagePull: failed to pull image "gopher-device-plugin:0.1.0"' in said


def test_the_first_screen_says_that_nothing_is_published_as_long_as_that_is_so() -> None:
    latest = re.findall(r"^## (.+)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)[0]
    first = README.partition("\n## ")[0]
    assert ("not released" in latest) == ("**Nothing is published**" in first)
