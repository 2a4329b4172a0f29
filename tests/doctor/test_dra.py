"""What the doctor finds where devices are offered through DRA."""

import shutil
import socket
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cluster.scripted_api import Answer, Asked, Script, running
from deviceplugin._attribution.ownership import Claim
from deviceplugin._config.settings import Settings
from deviceplugin._dra.claims.claim_files import ClaimFiles, file_of
from deviceplugin._dra.claims.record import Record, RecordedDevice
from deviceplugin._dra.claims.records import Records
from deviceplugin.checks import Finding, Node
from deviceplugin.tools.doctor._check import run
from deviceplugin.tools.doctor.checks import KUBELET
from deviceplugin_testing.simulator import SimulatedCluster

CHECKS = {one.name: one for one in KUBELET}
RUNTIME = CHECKS["dra-runtime"]
DRIVER = "gopher.example.com"
DEVICE = RecordedDevice("example.com/gopher", "gary", "one", "node/pool", "gary")


@pytest.fixture
def node(root: Path) -> Node:
    """A node with a driver that has one claim."""
    node = Node(root=root, settings=Settings(protocol="dra"), timeout=2.0)
    directory = node.at(node.settings.driver_dir) / DRIVER
    document = {"kind": f"k8s.{DRIVER}/claim"}
    claim = Claim("default", "one", "uid-1")
    record = Record(claim, "boot", "prepared", [DEVICE], document)
    Records(directory / "claims").write(record)
    ClaimFiles(node.at(node.settings.cdi_dir), DRIVER, directory).put(record)
    return node


@pytest.fixture
def listening(node: Node) -> Iterator[None]:
    with closing(socket.socket(socket.AF_UNIX)) as server:
        server.bind(str(node.at(node.settings.driver_dir) / DRIVER / "dra.sock"))
        server.listen()
        yield


def found(node: Node) -> list[tuple[str, str]]:
    """Return verdict and text of all findings about the node that are not ok."""
    results = [one.finding for one in run(node, [CHECKS["dra"]])]
    return [(one.verdict, one.found) for one in results if one.verdict != "ok"]


def claims(node: Node) -> Path:
    return node.at(node.settings.driver_dir) / DRIVER / "claims"


def test_a_node_without_dra_needs_nothing(node: Node) -> None:
    shutil.rmtree(claims(node))
    node = replace(node, settings=Settings())
    (one,) = run(node, [CHECKS["dra"]])
    assert "no driver has claims here; only protocol=dra needs it" == one.finding.found
    shutil.rmtree(node.at(node.settings.driver_dir))
    assert [] == found(node)


@pytest.mark.usefixtures("listening")
def test_nothing_is_wrong_with_a_good_driver(node: Node) -> None:
    assert [] == found(node)
    texts = [one.finding.found for one in run(node, [CHECKS["dra"]])]
    assert ["is a writable directory"] * 2 + ["serves, and has 1 prepared claims"] == texts


def test_directories_that_cannot_be_used_are_named(node: Node) -> None:
    for directory in (node.settings.driver_dir, node.settings.cdi_dir):
        shutil.rmtree(node.at(directory))
    assert [("failure", "does not exist")] * 2 == found(node)
    node.at(node.settings.cdi_dir).touch()
    assert ("failure", "is not a directory") in found(node)


@pytest.mark.usefixtures("listening")
def test_a_record_of_another_version_is_not_to_be_deleted(node: Node) -> None:
    path = claims(node) / "uid-1.json"
    path.write_text(path.read_text().replace('"version": 1', '"version": 2'))
    (failed,) = [one for one in CHECKS["dra"].run(node) if one.verdict == "failure"]
    assert failed.found.startswith("is of version 2, and this release reads 1: ")
    assert "use the release that wrote it, or delete the pod that has the claim." == failed.do


@pytest.mark.usefixtures("listening")
def test_records_that_cannot_be_read_are_failures(node: Node) -> None:
    (claims(node) / "uid-2.json.bad").touch()
    (claims(node) / "uid-3.json").write_text("{}")
    (claims(node) / ".uid-4.json").touch()
    texts = dict(found(node)[::-1]), [verdict for verdict, _ in found(node)]
    assert ["failure", "failure"] == texts[1]
    assert {"failure": "was not a readable record of a claim, and has been set aside"} == texts[0]


@pytest.mark.usefixtures("listening")
def test_a_claim_without_its_file_is_a_failure(node: Node) -> None:
    path = node.at(node.settings.cdi_dir) / file_of(DRIVER, "uid-1")
    path.unlink()
    expected = f"claim default/one is prepared, but there is no {path}"
    assert [("failure", expected)] == found(node)


def test_claims_without_a_driver_are_a_warning(node: Node) -> None:
    with closing(socket.socket(socket.AF_UNIX)) as dead:
        dead.bind(str(claims(node).parent / "dra.sock"))
    expected = "nobody listens on dra.sock, and 1 claims are prepared"
    assert [("warning", expected)] == found(node)
    (claims(node) / "uid-1.json").unlink()
    assert [] == found(node)


# The cluster.


@pytest.fixture
def cluster() -> Iterator[SimulatedCluster]:
    with SimulatedCluster() as cluster:
        cluster.create(device_class({"extendedResourceName": "example.com/gopher"}))
        yield cluster


def device_class(spec: Mapping[str, Any]) -> dict[str, Any]:
    return {"kind": "DeviceClass", "metadata": {"name": "gopher"}, "spec": dict(spec)}


def verdicts(node: Node, url: str) -> list[tuple[str, str]]:
    node = replace(node, settings=Settings(protocol="dra", api_server=url))
    results = [one.finding for one in run(node, [CHECKS["dra-cluster"]])]
    return [(one.verdict, one.found) for one in results]


def test_a_good_cluster_has_all_and_one_without_a_class_or_that_is_away_has_not(
    node: Node, cluster: SimulatedCluster
) -> None:
    served = [("ok", "is served"), ("ok", "suffice for claims and slices")]
    given = ("ok", "are given through DRA: example.com/gopher by gopher")
    assert [*served, given] == verdicts(node, cluster.url)
    assert not [one for one in cluster.requests if one.verb not in {"get", "list", "create"}]
    cluster.delete("DeviceClass", "gopher")
    cluster.create(device_class({}))
    without = ("warning", "none of 1 DeviceClasses has an extendedResourceName")
    assert [*served, without] == verdicts(node, cluster.url)
    cluster.go_away()
    assert ["failure"] == [verdict for verdict, _ in verdicts(node, cluster.url)]


def scripted(asked: Asked) -> Answer:
    """Answer as an old cluster, in which the account has few rights."""
    if "selfsubjectaccessreviews" in asked.path:
        verb = asked.body["spec"]["resourceAttributes"]["verb"]
        return Answer.of({"status": {"allowed": verb in {"get", "list"}}})
    return Answer(403, "no") if asked.path.endswith("deviceclasses") else Answer(404, "no")


def test_an_old_cluster_and_missing_rights_are_failures(node: Node) -> None:
    with running(Script(otherwise=scripted)) as api:
        findings = verdicts(node, api.url)
    denied = "watch resourceslices, create resourceslices, update resourceslices"
    assert [
        ("failure", "is not served"),
        ("failure", f"it may not {denied}, delete resourceslices"),
        ("unknown", "the API server answers 403: no"),
    ] == findings


def test_an_account_that_may_do_nothing_at_all_is_a_failure(node: Node) -> None:
    with running(Script(otherwise=lambda _asked: Answer(403, "no"))) as api:
        node = replace(node, settings=Settings(protocol="dra", api_server=api.url))
        (one,) = run(node, [CHECKS["dra-cluster"]])
    assert "the API server answers 403: no" == one.finding.found
    assert "apply the ClusterRole and its binding of the component dra." == one.finding.do


def test_without_protocol_dra_nobody_is_asked(node: Node) -> None:
    node = replace(node, settings=Settings())
    cluster, runtime = (one.finding for one in run(node, [CHECKS["dra-cluster"], RUNTIME]))
    assert ("ok", "is not asked; only protocol=dra needs it") == (cluster.verdict, cluster.found)
    expected = "is not examined for CDI; only protocol=dra needs it"
    assert ("ok", expected) == (runtime.verdict, runtime.found)


def test_outside_a_pod_there_is_nobody_to_ask(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    ((verdict, text),) = verdicts(node, "")
    assert "unknown" == verdict
    assert text.startswith("this is not a pod")


# The container runtime.

CRI = '[plugins."io.containerd.grpc.v1.cri"]\n'


def runtime(node: Node, text: str = "", path: str = "etc/containerd/config.toml") -> list[Finding]:
    """Return what is found with this configuration of the runtime."""
    if text:
        file = node.at(path)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return [one.finding for one in run(node, [RUNTIME])]


@pytest.mark.parametrize(
    ("text", "verdict", "words"),
    [
        ("version = 3\n", "ok", "CDI is on"),
        (f"version = 2\n{CRI}enable_cdi = true\n", "ok", "CDI is on"),
        (f"version = 2\n{CRI}enable_cdi = false\n", "failure", "CDI is off"),
        ("version = 2\n", "unknown", "does not say whether CDI is on; it is from containerd 2"),
    ],
)
def test_a_runtime_must_add_cdi_devices(node: Node, text: str, verdict: str, words: str) -> None:
    (one,) = runtime(node, text)
    assert verdict == one.verdict
    assert one.found.startswith(words)
    assert (verdict == "ok") != ("enable_cdi = true" in one.do)


@pytest.mark.parametrize(
    ("text", "path", "fine"),
    [
        (f'version = 3\n{CRI}cdi_spec_dirs = ["/etc/cdi", "/run/cdi/"]\n', "", True),
        (f'version = 3\n{CRI}cdi_spec_dirs = ["/etc/cdi"]\n', "", False),
        (f'version = 3\n{CRI}cdi_spec_dirs = "/etc/cdi"\n', "", True),  # which is not a list
        ('[crio.runtime]\ncdi_spec_dirs = ["/srv/cdi"]\n', "etc/crio/crio.conf", False),
        ('[crio.runtime]\nlog_level = "info"\n', "etc/crio/crio.conf", True),
    ],
)
def test_a_runtime_must_look_where_claims_are_written(
    node: Node, text: str, path: str, *, fine: bool
) -> None:
    first, *others = runtime(node, text, path or "etc/containerd/config.toml")
    assert ("ok", "CDI is on") == (first.verdict, first.found)
    assert ([] if fine else ["failure"]) == [one.verdict for one in others]
    assert all("and not in /var/run/cdi" in one.found for one in others)


def test_a_directory_of_its_own_must_be_known_to_the_runtime(node: Node) -> None:
    settings = replace(node.settings, cdi_dir=Path("/srv/cdi"))
    found = runtime(replace(node, settings=settings), "version = 3\n")
    assert "looks for CDI files in /etc/cdi, /var/run/cdi, and not in /srv/cdi" in found[-1].found


def test_a_runtime_without_a_usable_configuration_is_unknown(node: Node) -> None:
    (one,) = runtime(node)
    assert ("unknown", "no configuration found") == (one.verdict, one.found)
    assert ["warning", "unknown"] == [one.verdict for one in runtime(node, "version = [")]
