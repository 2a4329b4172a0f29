"""The end to end suite on a cluster, with the real kubectl and a stand-in for the cluster."""

import json
import os
import re
import signal
import subprocess
import sys
import tarfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from cluster.kinds import DAEMON_SET, NAMESPACE, POD, Object
from cluster.small_cluster import PLUGINS, SHELL, SmallCluster, running, why_not
from homes.case import cases
from homes.cluster.deployed import Deployed
from homes.cluster.kubectl import Kubectl
from homes.cluster.manifests import Options, Overlay, Pods
from homes.cluster.node import ClusterNode, as_number
from homes.cluster.progress import Progress
from homes.cluster.session import why_not_pretend
from patience import eventually

ROOT = Path(__file__).parents[2]
GOPHER = PLUGINS["gopher-device-plugin:0.1.0"]
BROKEN = {"gopher-device-plugin:0.1.0": ["sh", "-c", "echo it is broken; exit 3"]}
needs_kubectl = pytest.mark.skipif(bool(why_not()), reason=why_not() or "-")
slow = pytest.mark.slow  # a pytest of its own, and a kubectl for each step


def suite(
    *words: str, file: str = "e2e/test_homes.py", **environment: str
) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", file, "-n", "0", "-q"]
    options = ["-p", "no:cacheprovider", "-p", "no:randomly", "-rs", "--tb=short"]
    return subprocess.run(
        [*command, *options, *words],
        cwd=ROOT,
        env={"PATH": os.environ["PATH"], **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def on(
    cluster: SmallCluster, *words: str, file: str = "e2e/test_homes.py"
) -> subprocess.CompletedProcess[str]:
    return suite("--cluster", *words, file=file, **cluster.environment)


def made(cluster: SmallCluster) -> list[Object]:
    """Return the DaemonSets that there were, as they came."""
    changes = [one for one in cluster.store.since(0) if one.kind == DAEMON_SET]
    return [one.last for one in changes if one.before is None]


def assert_clean(cluster: SmallCluster) -> None:
    assert ["default", "kube-system"] == cluster.there(NAMESPACE)
    assert [] == cluster.there(POD)
    assert [] == [*(cluster.node.root / "tmp").iterdir()]


@needs_kubectl
@slow
def test_the_suite_passes_and_leaves_nothing_behind() -> None:
    image = "registry.example.com:5000/g:7"
    own = {image: GOPHER, "own-shell:1": SHELL["busybox:1.37"]}
    words = [f"--image={image}", "--pull-policy=Never", "--runtime-class=special"]
    with running(own) as cluster:
        bell = cluster.node.bell
        words += [f"--restart-kubelet=touch {bell}; while test -e {bell}; do sleep 0.05; done"]
        done = on(cluster, "-m", "gopher", *words, "--pod-image=own-shell:1", "--node=node-1")
        assert "3 passed" in done.stdout, done.stdout
        assert "skipped" not in done.stdout
        assert_clean(cluster)
        (one,) = made(cluster)  # by the first, and reused until it is uninstalled
    assert one["metadata"]["namespace"].startswith("e2e-")
    pod = one["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert (image, "Never") == (container["image"], container["imagePullPolicy"])
    assert "special" == pod["runtimeClassName"]
    # The node's label, which here is not its name.
    assert "node-1.example.com" == pod["nodeSelector"]["kubernetes.io/hostname"]


@needs_kubectl
@slow
def test_images_are_named_as_the_node_lists_them_which_may_complete_no_names() -> None:
    listed = "localhost/gopher-device-plugin:0.1.0"
    shell = {"docker.io/library/busybox:1.37": SHELL["busybox:1.37"]}
    with running({listed: GOPHER, "e.com/other-gopher-device-plugin:0.1.0": [], **shell}) as one:
        done = on(one, "-m", "gopher", "-k", "come_and_go", "--pull-policy=Never")
        assert "1 passed" in done.stdout, done.stdout
        (there,) = made(one)
    assert listed == there["spec"]["template"]["spec"]["containers"][0]["image"]


@needs_kubectl
@slow
def test_kubernetes_own_scenarios_pass_and_leave_nothing_behind() -> None:
    with running({**PLUGINS, **SHELL}) as cluster:
        bell = cluster.node.bell
        restart = f"--restart-kubelet=touch {bell}; while test -e {bell}; do sleep 0.05; done"
        done = on(cluster, restart, file="e2e/upstream/test_any_home.py")
        assert "4 passed" in done.stdout, done.stdout
        assert "skipped" not in done.stdout
        assert_clean(cluster)


@needs_kubectl
@slow
def test_what_fails_is_cleaned_up_and_its_logs_are_kept(tmp_path: Path) -> None:
    with running({**BROKEN, **SHELL}) as cluster:
        chosen = ("-m", "gopher", "-k", "come_and_go", "--patience=3")
        done = on(cluster, *chosen, f"--logs={tmp_path}")
        assert 1 == done.returncode, done.stdout
        assert ["default", "kube-system"] == cluster.there(NAMESPACE)
        assert [] == cluster.there(POD)
    (folder,) = tmp_path.iterdir()
    kept = {"objects.yaml", "events.txt", "pods.txt", "plugin.log", "node.txt"}
    assert kept == {path.name for path in folder.iterdir()}
    assert "it is broken" in (folder / "plugin.log").read_text()
    assert "kind: DaemonSet" in (folder / "objects.yaml").read_text()
    assert "gopher-device-plugin-" in (folder / "pods.txt").read_text()
    assert "node-1" in (folder / "node.txt").read_text()


@needs_kubectl
@slow
def test_another_plugin_is_left_alone_and_missing_hardware_is_known_at_once() -> None:
    with running({**PLUGINS, **SHELL}) as cluster:
        cluster.kubectl("apply", "--kustomize=deployments/simulated")
        resource = "example.com/simple-device"
        eventually(lambda: cluster.node.kubelet.allocatable(resource) == 2)
        done = on(cluster, "-m", "simulated or fpga", "-k", "removal or can_open")
        assert "3 skipped" in done.stdout, done.stdout
        assert f"node-1 has {resource} already" in done.stdout
        assert "node-1 has no hardware for fpga.intel.com/region-*" in done.stdout
        names = [one["metadata"]["name"] for one in made(cluster)]
        assert ["simulated-device-plugin", "fpga-device-plugin"] == names
        assert ["default", "kube-system", names[0]] == cluster.there(NAMESPACE)


@needs_kubectl
@slow
@pytest.mark.skipif(bool(why_not_pretend()), reason=why_not_pretend() or "-")
def test_a_node_can_pretend_to_have_hardware() -> None:
    with running({**PLUGINS, **SHELL}) as cluster:
        done = on(cluster, "-m", "gpu", "-k", "removal", "--pretend-hardware")
        assert "1 passed" in done.stdout, done.stdout
        (folder,) = {
            one["spec"]["template"]["spec"]["volumes"][0]["hostPath"]["path"]
            for one in made(cluster)
        }
        assert re.fullmatch(r"/tmp/e2e-[0-9a-f]{8}/hardware", folder)
        assert_clean(cluster)


@needs_kubectl
@slow
def test_an_upgrade_is_from_another_release(tmp_path: Path) -> None:
    images = {f"gopher-device-plugin:{tag}": GOPHER for tag in ("0.1.0", "0.0.9")}
    words = ("-m", "gopher", f"--before={ROOT}", "--before-tag=0.0.9", f"--logs={tmp_path}")
    with running({**images, **SHELL}) as cluster:
        done = on(cluster, *words, file="e2e/test_cluster.py")
        assert "1 passed, 1 skipped" in done.stdout, done.stdout
        assert "no --reboot" in done.stdout
        assert_clean(cluster)


@needs_kubectl
@slow
def test_a_case_finds_nothing_of_an_earlier_one_that_offers_the_same() -> None:
    with running({**PLUGINS, **SHELL}) as cluster:
        done = on(cluster, "-m", "gopher or node or simulated", "-k", "removal")
        assert "3 passed" in done.stdout, done.stdout
        assert "skipped" not in done.stdout
        assert_clean(cluster)


@needs_kubectl
@slow
def test_all_that_cases_change_is_in_their_deployments(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running({}) as cluster:
        monkeypatch.setenv("KUBECONFIG", str(cluster.config))
        node = ClusterNode(Kubectl("default", 60))
        here = Deployed(tmp_path, node, Options(image="own/i:7"), Progress(print))
        for case in cases().values():
            written = here.write_overlay(case.plugin)
            assert bool(case.plugin.files) == (str(here.folder / "files") in written)
        beside = {"devices.yaml": "resources: {}\n"}
        here.write_overlay(replace(case.plugin, config="devices: devices.yaml\n", beside=beside))
        rendered = yaml.safe_load_all(here.kubectl("kustomize", str(tmp_path)))
        (config,) = (one["data"] for one in rendered if one["kind"] == "ConfigMap")
        assert {"config.yaml": "devices: devices.yaml\n", **beside} == config
        node_plugin = cases()["node"].plugin
        with pytest.raises(AssertionError, match="no volume of /etc/gophers to replace"):
            here.write_overlay(replace(node_plugin, components=("node-simulated",)))

    pod = {"containers": [{"name": "device-plugin", "image": "localhost/node-device-plugin:0.1.0"}]}
    found = {"kind": "DaemonSet", "metadata": {"name": "n"}, "spec": {"template": {"spec": pod}}}
    overlay = Overlay(replace(node_plugin, config=""), Options(image="own/i:7"), "e2e-1", "n1")
    with pytest.raises(AssertionError, match="the image localhost/node-device-plugin:0"):
        overlay.check(json.dumps(found))
    with pytest.raises(AssertionError, match="no ConfigMap"):
        replace(overlay, plugin=node_plugin, options=Options()).check(json.dumps(found))


def make_e2e(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(**made_by(*words, **environment), capture_output=True, check=False)


def made_by(*words: str, **environment: str) -> dict[str, Any]:
    own = {"PATH": os.environ["PATH"], "PYTHONPATH": "build", **environment}
    command = [sys.executable, "e2e/run.py", *words, "-p", "no:cacheprovider"]
    return {"args": command, "cwd": ROOT, "env": own, "text": True}


@needs_kubectl
@slow
def test_make_e2e_says_what_became_of_each_scenario_and_packs_what_failed(tmp_path: Path) -> None:
    logs = f"--logs={tmp_path}"
    with running({**BROKEN, **SHELL}) as cluster:
        chosen = ("gopher", logs, "-k", "come_and_go or reboot", "--patience=3")
        done = make_e2e(*chosen, **cluster.environment)
        assert 1 == done.returncode, done.stdout
        assert_clean(cluster)
    assert re.search("^  devices come and go: failed, [0-9]+ s$", done.stdout, re.MULTILINE)
    assert "told [gopher]: skipped: no --reboot, 0 s" in done.stdout
    (archive,) = tmp_path.iterdir()
    assert f"logs and objects: {archive}\n" in done.stdout
    with tarfile.open(archive) as packed:
        names = {Path(name).name for name in packed.getnames()}
    assert {"summary.txt", "plugin.log", "node.txt"} <= names
    with running({**PLUGINS, **SHELL}) as cluster:
        done = make_e2e("gopher", logs, "-k", "reboot", **cluster.environment)
        assert (1, [archive]) == (done.returncode, [*tmp_path.iterdir()])
    assert "nothing was tried" in done.stdout


@needs_kubectl
@slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_make_e2e_leaves_nothing_behind_when_it_is_interrupted(
    tmp_path: Path, number: signal.Signals
) -> None:
    with running({**PLUGINS, **SHELL}) as cluster:
        logs = f"--logs={tmp_path}"
        words = made_by("gopher", logs, "-k", "serves", **cluster.environment)
        with (tmp_path / "said").open("w") as said, subprocess.Popen(**words, stdout=said) as run:
            eventually(lambda: cluster.there(POD))
            run.send_signal(number)
            eventually(lambda: not cluster.there(DAEMON_SET))
            run.send_signal(number)  # while it is removed
        assert 2 == run.returncode
        assert_clean(cluster)
    assert ["said"] == [one.name for one in tmp_path.iterdir()]


@pytest.mark.parametrize(
    ("parts", "names", "said"),
    [
        ([], ["docker.io/library/gopher-device-plugin:0.1.0"], "left out, as n1 has no images"),
        (["gopher"], ["localhost/gopher-device-plugin:0.1.0"], ""),
        (["gopher"], ["gopher-device-plugin:0.0.9"], "sudo ctr --namespace k8s.io images import"),
        (["operator"], ["deviceplugin-operator:0.1.0"], "n1 has no simulated-device-plugin:0.1.0"),
        ([], ["busybox:1.37"], "make images ARGS='gopher'; "),
    ],
)
def test_make_e2e_says_at_once_which_image_is_missing_and_how_it_comes_there(
    parts: list[str], names: list[str], said: str, tmp_path: Path
) -> None:
    about = {"containerRuntimeVersion": "containerd://2.1.9"}
    status = {"images": [{"names": names}, {"names": None}], "nodeInfo": about}
    made = {"metadata": {"name": "n1"}, "spec": {}, "status": status}
    (tmp_path / "nodes.json").write_text(json.dumps(made))
    (tmp_path / "kubectl").write_text(f"#!/bin/sh\ncat {tmp_path}/nodes.json\n")
    (tmp_path / "kubectl").chmod(0o755)
    words = [*parts, "--patience=0", "--collect-only", f"--logs={tmp_path / 'logs'}"]
    path, config = f"{tmp_path}:{os.environ['PATH']}", f"{tmp_path}/nodes.json"
    done = make_e2e(*words, PATH=path, KUBECONFIG=config)
    assert said in done.stdout
    assert ("import" in said or "make" in said or "simulated" in said) == (2 == done.returncode)


def test_two_cases_do_not_call_the_pod_of_an_example_the_same() -> None:
    pod = {"metadata": {"name": "fpga-user"}, "spec": {"containers": [{"name": "main"}]}}
    names = [Pods(Options(), "e2e", "n", case).example(pod)["metadata"]["name"] for case in "ab"]
    assert ["fpga-user-a", "fpga-user-b"] == names


@slow
def test_a_cluster_is_used_only_if_it_is_said_twice() -> None:
    operator = "e2e/test_operator.py"
    assert "needs a cluster" in suite("-x", file=operator, KUBECONFIG="/dev/null").stdout
    said = suite("-x", "--cluster", file=operator, KUBECONFIG="").stdout
    assert "--cluster needs KUBECONFIG" in said


@pytest.mark.parametrize(
    ("quantity", "count"), [("0", 0), ("2", 2), ("1k", 1000), ("12M", 12000000)]
)
def test_a_thousand_devices_are_written_otherwise(quantity: str, count: int) -> None:
    assert count == as_number(quantity)
