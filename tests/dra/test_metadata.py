"""What containers can read about their devices: right, safe, and there as long as it is mounted."""

import json
from pathlib import Path
from typing import Any

import pytest

from deviceplugin._attribution.ownership import Claim
from deviceplugin.kit.sharing import shares
from drivers.driver_node import DRIVER, POOL, RESOURCE, DriverNode, gopher, result
from full_disk import full_disk

TEMPLATE = "resource.kubernetes.io/pod-claim-name"
INSIDE = "/var/run/kubernetes.io/dra-device-attributes"


@pytest.fixture
def node(tmp_path: Path) -> DriverNode:
    gary = gopher("gary", attributes={"pci": "0000:3b:00.0", "teeth": 4})
    return DriverNode(tmp_path, gary, gopher("gerd"), gopher("gina")).describing()


def mounts(node: DriverNode, claim: Claim) -> dict[str, Path]:
    """Return the files on the host that the containers of a claim mount, by their paths."""
    document = node.records.all()[claim.uid].document or {"devices": []}
    found = [
        edits for one in document["devices"] for edits in one["containerEdits"].get("mounts", ())
    ]
    assert [["ro", "rbind", "rprivate"]] * len(found) == [one["options"] for one in found]
    return {one["containerPath"]: Path(one["hostPath"]) for one in found}


def document_in(file: Path) -> Any:
    """Return the first document of a stream."""
    return json.loads(file.read_text().splitlines()[0])


def test_each_request_has_a_file_with_the_attributes_of_its_devices(node: DriverNode) -> None:
    claim = node.allocate(
        "one", result("gary"), result("gina", "two/big"), result("gerd", "two/big")
    )
    node.prepare(claim)
    found = mounts(node, claim)
    folder = f"{INSIDE}/resourceclaims/one"
    assert [f"{folder}/{name}/{DRIVER}-metadata.json" for name in ("one", "two")] == [*found]
    one, two = found.values()
    assert [0o100644, 0o755] == [one.stat().st_mode, one.parent.stat().st_mode & 0o777]
    documents = [json.loads(line) for line in one.read_text().splitlines()]
    assert ["v1beta1", "v1alpha1"] == [
        each.pop("apiVersion").removeprefix("metadata.resource.k8s.io/") for each in documents
    ]
    attributes = {
        "id": {"string": "gary"},
        "resource": {"string": RESOURCE},
        "resource.kubernetes.io/pciBusID": {"string": "0000:3b:00.0"},
        "pci": {"string": "0000:3b:00.0"},
        "teeth": {"int": 4},
    }
    device = {"driver": DRIVER, "pool": POOL, "name": "gary", "attributes": attributes}
    identity = {"name": "one", "namespace": "default", "uid": "uid-one", "generation": 1}
    requests = [{"name": "one", "devices": [device]}]
    expected = {"kind": "DeviceMetadata", "metadata": identity, "requests": requests}
    assert [expected, expected] == documents
    (request,) = document_in(two)["requests"]
    names = [each["name"] for each in request["devices"]]
    assert ("two/big", ["gina", "gerd"]) == (request["name"], names)


@pytest.mark.parametrize(
    ("annotation", "folder"),
    [
        ("my-gopher", "resourceclaimtemplates/my-gopher"),
        ("", "resourceclaims/one"),
        ("../../../etc", "resourceclaims/one"),
        ("a/b", "resourceclaims/one"),
        ("a" * 64, "resourceclaims/one"),
        ("a\n", "resourceclaims/one"),
    ],
)
def test_a_claim_of_a_template_has_the_name_that_the_pod_gives_it(
    node: DriverNode, annotation: str, folder: str, caplog: pytest.LogCaptureFixture
) -> None:
    claim = node.allocate("one", result("gary"))
    node.store.objects["default", "one"]["metadata"]["annotations"] = {TEMPLATE: annotation}
    node.prepare(claim)
    ((path, file),) = mounts(node, claim).items()
    assert f"{INSIDE}/{folder}/one/{DRIVER}-metadata.json" == path
    own = annotation if "templates" in folder else None
    assert own == document_in(file).get("podClaimName")
    wrong = ["annotation of a claim ignored"] if annotation and own is None else []
    assert wrong == [one.message for one in caplog.records if one.levelname == "WARNING"]


@pytest.mark.parametrize(
    ("claim", "request_"),
    [
        ("../etc", "one"),
        ("one", ".."),
        ("one", ""),
        ("one", "a" * 64),
        ("one", "a\n"),
        ("One", "a"),
    ],
)
def test_what_is_no_name_becomes_no_path_and_holds_nothing(
    node: DriverNode, claim: str, request_: str
) -> None:
    wrong = node.allocate(claim, result("gary", request_), uid="uid")
    assert " is not the name of a " in node.refusal(wrong)
    assert ([], [], [], {}) == (
        node.recorded(),
        node.cdi_files(),
        node.metadata_files(),
        node.ownership.claims(),
    )


def test_shares_are_described_as_the_device_that_slices_have(tmp_path: Path) -> None:
    node = DriverNode(tmp_path).describing()
    node.resource.publish([*shares(gopher("gary", attributes={"teeth": 4}), 4)])
    parts: dict[str, Any] = {"shareID": "s-1", "consumedCapacity": {"shares": "2"}}
    single = sorted(node.resource.devices)[3]
    for claim, id_ in (
        (node.allocate("one", result("gary", **parts)), "gary"),
        (node.allocate("two", result(single, "single")), single),
    ):
        node.prepare(claim)
        (file,) = mounts(node, claim).values()
        ((device,),) = [one["devices"] for one in document_in(file)["requests"]]
        said = device["attributes"]
        assert (id_, 4) == (said["id"]["string"], said["teeth"]["int"])


def test_a_file_is_there_as_long_as_a_container_may_start_with_it(node: DriverNode) -> None:
    claim = node.allocate("one", result("gary"))
    given = node.prepare(claim)
    (file,) = mounts(node, claim).values()
    text = file.read_text()
    for damage in (file.unlink, lambda: file.write_text("{}"), lambda: file.chmod(0o600)):
        damage()
        assert [file] == node.files.repair()
        damage()
        assert given == node.prepare(claim)
        assert (text, 0o100644) == (file.read_text(), file.stat().st_mode)
    node.describe = None  # what is prepared keeps it when no new claim gets it
    file.unlink()
    file.parent.rmdir()
    node.restart()
    assert text == file.read_text()
    node.boot()
    assert text == file.read_text()
    assert given == node.prepare(claim)
    assert ([], {}) == (node.metadata_files(), mounts(node, claim))
    node.describing().boot()
    node.prepare(claim)
    assert text == file.read_text()
    file.unlink()  # it does not come back after the release
    node.unprepare(claim)
    assert ([], []) == (node.metadata_files(), node.files.repair())


def test_without_the_setting_nothing_is_written(tmp_path: Path) -> None:
    node = DriverNode(tmp_path, gopher("gary"))
    claim = node.allocate("One", result("gary"))  # and nobody minds a name
    node.prepare(claim)
    assert "mounts" not in json.dumps(node.records.all()[claim.uid].document)
    assert not node.metadata_dir.exists()


def test_what_a_killed_or_failed_prepare_left_is_removed(node: DriverNode) -> None:
    claim = node.allocate("one", result("gary"))
    node.cdi_dir.write_text("a file")
    assert "File exists" in node.refusal(claim)
    assert [] == node.metadata_files()
    node.cdi_dir.unlink()
    with full_disk():
        node.refusal(claim)
    for name in ("uid-gone_one.json", f".uid-gone_one.json.{'0' * 32}.draft"):
        (node.metadata_dir / name).touch()
    node.prepare(claim)
    node.restart()
    assert ["uid-one_one.json"] == node.metadata_files()


def test_planted_links_and_folders_lead_nowhere(node: DriverNode, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.mkdir()
    (victim / "precious.json").write_text("precious")
    node.metadata_dir.symlink_to(victim)
    node.restart()
    claim = node.allocate("one", result("gary"))
    node.unprepare(claim)
    node.prepare(claim)
    assert not node.metadata_dir.is_symlink()
    (file,) = mounts(node, claim).values()
    file.unlink()
    file.symlink_to(victim / "precious.json")
    (node.metadata_dir / "folder").mkdir()
    (node.metadata_dir / "link").symlink_to(victim)
    node.metadata_dir.chmod(0o700)
    node.restart()
    assert not file.is_symlink()
    assert ["folder", file.name] == node.metadata_files()
    assert 0o755 == node.metadata_dir.stat().st_mode & 0o777
    assert {"precious.json": "precious"} == {one.name: one.read_text() for one in victim.iterdir()}
    (node.metadata_dir / "folder").rmdir()
    node.unprepare(claim)
    node.metadata_dir.rmdir()
    node.metadata_dir.write_text("a file")
    node.restart()
    assert f"{node.metadata_dir}: File exists" == node.refusal(claim)
