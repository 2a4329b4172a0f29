"""The end to end suite on a cluster, with the real kubectl and a stand-in for the cluster."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from cluster.kinds import DAEMON_SET, NAMESPACE, POD, Object
from cluster.small_cluster import PLUGINS, SHELL, SmallCluster, running, why_not
from homes.cluster.manifests import Options, Pods
from homes.cluster.node import as_number
from homes.cluster.session import why_not_pretend
from patience import eventually

ROOT = Path(__file__).parents[2]
GOPHER = {"gopher-device-plugin:0.1.0": PLUGINS["gopher-device-plugin:0.1.0"]}
FUSE = Path("/sys/class/misc/fuse")
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
    # Not what looks at how pods are contained: here they are not.
    chosen, count = ["-m", "generic", "-k", "kubelet or prints or gets_what"], 3
    if not FUSE.exists():
        chosen += ["--deselect=e2e/test_homes.py::test_an_example_prints_what_its_page_says[fuse]"]
        count -= 1
    with running({**PLUGINS, **SHELL}) as cluster:
        bell = cluster.node.bell
        ring = f"--restart-kubelet=touch {bell}; while test -e {bell}; do sleep 0.05; done"
        done = on(cluster, *chosen, ring)
        assert f"{count} passed" in done.stdout, done.stdout
        assert "skipped" not in done.stdout
        assert_clean(cluster)
        # What all but the first find is reused, until it is uninstalled.
        (namespace,) = {one["metadata"]["namespace"] for one in made(cluster)}
        assert namespace.startswith("e2e-")


@needs_kubectl
@slow
def test_the_suite_passes_with_other_images() -> None:
    image = "registry.example.com:5000/g:7"
    own = {image: PLUGINS["gopher-device-plugin:0.1.0"], "own-shell:1": SHELL["busybox:1.37"]}
    words = [f"--image={image}", "--pull-policy=Never", "--runtime-class=special"]
    with running(own) as cluster:
        done = on(cluster, "-m", "gopher", *words, "--pod-image=own-shell:1", "--node=node-1")
        assert "5 passed, 1 skipped" in done.stdout, done.stdout
        assert "no --restart-kubelet" in done.stdout
        assert_clean(cluster)
        pods = [one["spec"]["template"]["spec"] for one in made(cluster)]
    assert 1 == len(pods)
    assert image == pods[0]["containers"][0]["image"]
    assert "Never" == pods[0]["containers"][0]["imagePullPolicy"]
    assert "special" == pods[0]["runtimeClassName"]
    # The node's label, which here is not its name.
    assert "node-1.example.com" == pods[0]["nodeSelector"]["kubernetes.io/hostname"]


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
def test_a_node_that_has_the_resource_already_is_left_alone() -> None:
    with running({**PLUGINS, **SHELL}) as cluster:
        cluster.kubectl("apply", "--kustomize=deployments/simulated")
        resource = "example.com/simple-device"
        eventually(lambda: cluster.node.kubelet.allocatable(resource) == 2)
        done = on(cluster, "-m", "simulated", "-k", "disturbs")
        assert f"node-1 has {resource} already" in done.stdout
        assert ["simulated-device-plugin"] == [one["metadata"]["name"] for one in made(cluster)]


@needs_kubectl
@slow
def test_hardware_that_a_node_does_not_have_is_known_at_once() -> None:
    with running({**PLUGINS, **SHELL}) as cluster:
        done = on(cluster, "-m", "fpga", "-k", "gets_what or disturbs or uninstalled")
        assert "3 skipped" in done.stdout, done.stdout
        assert "node-1 has no hardware for fpga.intel.com/region-*" in done.stdout
        assert 1 == len(made(cluster))
        assert_clean(cluster)


@needs_kubectl
@slow
@pytest.mark.skipif(bool(why_not_pretend()), reason=why_not_pretend() or "-")
def test_a_node_can_pretend_to_have_hardware() -> None:
    with running({**PLUGINS, **SHELL}) as cluster:
        done = on(cluster, "-m", "gpu", "-k", "gets_what or disturbs", "--pretend-hardware")
        assert "2 passed" in done.stdout, done.stdout
        (folder,) = {
            one["spec"]["template"]["spec"]["volumes"][0]["hostPath"]["path"]
            for one in made(cluster)
        }
        assert re.fullmatch(r"/tmp/e2e-[0-9a-f]{8}/hardware", folder)
        assert_clean(cluster)


@needs_kubectl
@slow
def test_an_upgrade_is_from_another_release(tmp_path: Path) -> None:
    images = {**GOPHER, "gopher-device-plugin:0.0.9": GOPHER["gopher-device-plugin:0.1.0"], **SHELL}
    words = ("-m", "gopher", f"--before={ROOT}", "--before-tag=0.0.9", f"--logs={tmp_path}")
    with running(images) as cluster:
        done = on(cluster, *words, file="e2e/test_cluster.py")
        assert "1 passed, 1 skipped" in done.stdout, done.stdout
        assert "no --reboot" in done.stdout
        assert_clean(cluster)


def test_two_cases_do_not_call_the_pod_of_an_example_the_same() -> None:
    pod = {"metadata": {"name": "fpga-user"}, "spec": {"containers": [{"name": "main"}]}}
    names = [Pods(Options(), "e2e", "n", case).example(pod)["metadata"]["name"] for case in "ab"]
    assert ["fpga-user-a", "fpga-user-b"] == names


@slow
def test_a_cluster_is_used_only_if_it_is_said_twice() -> None:
    chosen = ("-m", "gopher", "-k", "uninstalled")
    done = suite(*chosen, KUBECONFIG="/dev/null")
    assert "1 passed" in done.stdout, done.stdout
    done = suite("--cluster", *chosen, KUBECONFIG="")
    assert "--cluster needs KUBECONFIG" in done.stdout


@pytest.mark.parametrize(
    ("quantity", "count"), [("0", 0), ("2", 2), ("1k", 1000), ("12M", 12000000)]
)
def test_a_thousand_devices_are_written_otherwise(quantity: str, count: int) -> None:
    assert count == as_number(quantity)
