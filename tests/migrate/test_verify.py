"""``deviceplugin migrate verify``: what is saved, and what differs later."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cluster.scripted_api import Script, running
from deviceplugin.__main__ import main
from fleets.objects import FORBIDDEN, container, having, node
from fleets.objects import pod as plain

Object = dict[str, Any]
Verify = Callable[..., tuple[int, list[str], str]]
GPU = "example.com/gpu"


@pytest.fixture
def script() -> Iterator[Script]:
    with running(Script()) as server:
        yield server


@pytest.fixture
def verify(
    script: Script,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Verify:
    """Return what runs the command: exit status, lines, errors."""
    monkeypatch.chdir(tmp_path)

    def call(*words: str) -> tuple[int, list[str], str]:
        status = main(["migrate", "verify", f"--api={script.url}", *words])
        out, err = capsys.readouterr()
        return status, out.splitlines(), err

    return call


def pod(name: str, place: str = "n1", restarts: int = 0, ids: tuple[str, ...] = ()) -> Object:
    """Return a pod that has a GPU."""
    found = plain(place, container(gpu=1))
    found["metadata"] = {"name": name, "namespace": "jobs", "uid": f"uid-{name}"}
    resources = [{"resourceID": one, "health": "Healthy"} for one in ids]
    entries = [{"name": GPU, "resources": resources}] if ids else []
    status = {"name": "c", "restartCount": restarts, "allocatedResourcesStatus": entries}
    found["status"]["containerStatuses"] = [status]
    return found


def test_nothing_differs_if_nothing_has_changed(script: Script, verify: Verify) -> None:
    script.otherwise = having([node("n1", gpu=(4, 4)), node("bare")], [pod("a", ids=("g1",))])
    saved = "saved: 1 nodes with devices, 1 pods that have some"
    assert (0, [saved], "") == verify("--save", "before.json")
    summary = "no differences: 1 nodes with devices, 1 pods that had some"
    assert (0, [summary], "") == verify("before.json")
    assert {"GET"} == {asked.method for asked in script.asked}


def test_each_difference_is_a_line(script: Script, verify: Verify) -> None:
    names = ("a", "b", "c", "d", "e")
    script.otherwise = having(
        [node("n1", gpu=(4, 4)), node("n2", gpu=(1, 1)), node("n10", nic=(2, 2))],
        [*(pod(name, ids=("g1", "g2")) for name in names), plain("n1", container())],
    )
    verify("--save", "before.json")
    other, ended = pod("b"), pod("e")
    other["metadata"]["uid"] = "another"
    ended["status"]["phase"] = "Pending"
    script.otherwise = having(
        [node("n1", gpu=(0, 4)), node("n10", nic=(2, 2), gpu=(1, 1)), node("n3", gpu=(1, 1))],
        [pod("a", restarts=1), other, pod("c", ids=("g2", "g3")), ended, pod("new")],
    )
    status, lines, _ = verify("before.json")
    assert 1 == status
    assert [
        "node n1: example.com/gpu: 4 before, 0 now",
        "node n2: is gone",
        "node n3: is new, with 1 example.com/gpu",
        "node n10: example.com/gpu: 0 before, 1 now",
        "pod jobs/a on n1: its containers were restarted",
        "pod jobs/b on n1: is another pod of this name",
        "pod jobs/c on n1: example.com/gpu: g1, g2 before, g2, g3 now",
        "pod jobs/d on n1: is gone; it had 1 example.com/gpu",
        "pod jobs/e on n1: Running before, Pending now",
        "9 differences: 2 nodes with devices, 5 pods that had some",
    ] == lines


def test_a_node_and_a_resource_can_be_chosen(script: Script, verify: Verify) -> None:
    before = [node("n1", gpu=(4, 4), nic=(1, 1)), node("n2", gpu=(4, 4))]
    script.otherwise = having(before, [pod("a"), pod("b", "n2")])
    verify("--save", "before.json")
    after = [node("n1", gpu=(4, 4), nic=(0, 1)), node("n2", gpu=(0, 4))]
    script.otherwise = having(after, [pod("a")])
    _, lines, _ = verify("before.json", "--node=n1", "--resource=example.com/g*")
    unknown = "; ids are known of 0 of them"
    assert [f"no differences: 1 nodes with devices, 1 pods that had some{unknown}"] == lines
    assert 1 == verify("before.json", "--node=n2")[0]
    status, _, error = verify("before.json", "--node=n9")
    assert (2, "deviceplugin migrate verify: --node n9: the cluster has no such node\n") == (
        status,
        error,
    )


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "is not what deviceplugin migrate verify --save writes"),
        ("[]", "is not what deviceplugin migrate verify --save writes"),
        ('{"format": 1, "nodes": {"a": 1}, "pods": []}', "is not what deviceplugin migrate verify"),
        ('{"format": 1, "nodes": {}, "pods": [{"name": 1}]}', "is not what deviceplugin"),
        ('{"format": 9, "nodes": {}, "pods": []}', "has format 9, not 1: save it again"),
    ],
)
def test_a_file_of_others_is_refused(
    script: Script, verify: Verify, tmp_path: Path, text: str, words: str
) -> None:
    script.otherwise = having([node("n1")])
    (tmp_path / "before.json").write_text(text)
    status, _, error = verify("before.json")
    assert 2 == status
    assert f"before.json: {words}" in error


def test_what_is_wrong_with_the_command_or_the_cluster_is_one_line(
    script: Script, verify: Verify, tmp_path: Path
) -> None:
    neither = "name the file from before, or where to --save it"
    assert (2, [], f"deviceplugin migrate verify: {neither}\n") == verify()
    assert 2 == verify("before.json", "--save=before.json")[0]
    script.otherwise = having(FORBIDDEN)
    status, _, error = verify("--save", "before.json")
    assert 1 == status
    assert "needs list nodes and list pods in all namespaces" in error
    script.otherwise = having([node("n1")])
    status, _, error = verify("--save", "absent/x")
    assert (2, "deviceplugin migrate verify: absent/x: No such file or directory\n") == (
        status,
        error,
    )
    assert 2 == verify(str(tmp_path / "absent.json"))[0]


def test_what_is_saved_is_json_of_a_known_form(script: Script, verify: Verify) -> None:
    script.otherwise = having([node("n1", gpu=(2, 4))], [pod("a", ids=("g1",))])
    verify("--save", "before.json")
    found = json.loads(Path("before.json").read_text())
    assert (1, {"n1": {GPU: 2}}) == (found["format"], found["nodes"])
    assert [
        {
            "name": "jobs/a",
            "uid": "uid-a",
            "node": "n1",
            "phase": "Running",
            "restarts": 0,
            "devices": {GPU: 1},
            "ids": {GPU: ["g1"]},
        }
    ] == found["pods"]


def test_a_file_that_is_called_as_a_command_needs_a_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "back").write_text("a: 1\n")
    assert 2 == main(["migrate", "back"])
    assert "name a MANIFEST, or give --from-cluster" in capsys.readouterr().err
    assert 2 == main(["migrate", "./back"])
    assert "./back: document 1: Helm values with the keys a" in capsys.readouterr().err
    assert 2 == main(["migrate"])
