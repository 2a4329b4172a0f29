"""``kubectl deviceplugin sysdump``: what is in the archive, and what is not."""

import json
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from cluster.scripted_api import Answer, Asked, Script
from deviceplugin_cli.diagnosis import _archive, _sysdump_cli
from deviceplugin_cli.diagnosis._archive import Archive
from fleets.objects import page
from fleets.plugin_pods import Api, Says, devices, doctor, finding, kubectl, plugin_pod

ANSWERS: Mapping[str, Says | str] = {
    "*doctor*": doctor(finding("failure", "mode", "token: hunter2")),
    "*deviceplugin?devices*": '{"devices": []}',
    "*/devices": devices(g0="it is hot"),
    "*/metrics": "deviceplugin_devices 1\n",
    "*/readyz": "not yet\n",
    "*/healthz": Says(error="refused", status=1),
    "*logs*--previous*": Says(error='previous terminated container "a" not found', status=1),
    "*logs*": "password=hunter2\nhello\n",
    "*version*": json.dumps({"clientVersion": {"gitVersion": "v1.36.0"}}),
}
CONFIG = {"metadata": {"name": "config", "namespace": "gpu"}, "data": {"a": "secret: hunter2"}}
Dump = Callable[..., tuple[int, str]]


class Everything(Api):
    """An API server that also has a ConfigMap, and refuses its accounts."""

    def __call__(self, asked: Asked) -> Answer:
        more = {"configmaps": page([CONFIG]), "serviceaccounts": Answer(403, "not you")}
        return more.get(asked.path.rpartition("/")[2]) or super().__call__(asked)


@pytest.fixture
def dump(
    script: Script,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> Dump:
    """Return a function that runs the command in ``tmp_path``: exit status, and what it prints."""
    script.otherwise = Everything(pods=[plugin_pod("p")])
    monkeypatch.chdir(tmp_path)

    def call(*words: str) -> tuple[int, str]:
        asked = [f"--api={script.url}", f"--kubectl={kubectl(tmp_path, ANSWERS)}", *words]
        status = _sysdump_cli.main(asked)
        captured = capsys.readouterr()
        return status, captured.out + captured.err

    return call


def files(path: Path) -> dict[str, str]:
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name).decode() for name in archive.namelist()}


def test_the_archive_has_what_a_report_needs_and_no_secret(dump: Dump, tmp_path: Path) -> None:
    status, out = dump("--file=dump.zip")
    found = files(tmp_path / "dump.zip")
    pod = "nodes/n1/gpu_p"
    expected = {
        "versions.json",
        "doctor.txt",
        "doctor.json",
        "left-out.txt",
        "objects/gpu/pods.json",
        "objects/gpu/configmaps.json",
        "objects/cluster/nodes.json",
        f"{pod}/doctor.json",
        f"{pod}/devices.json",
        f"{pod}/kubelet-devices.json",
        f"{pod}/metrics.txt",
        f"{pod}/readyz.txt",
        f"{pod}/events.log",
        f"{pod}/device-plugin.log",
    }
    assert (0, expected) == (status, {*found})
    assert "hunter2" not in "".join(found.values())
    assert "password=***\nhello\n" == found[f"{pod}/device-plugin.log"]
    assert found["doctor.txt"] in out
    assert "dump.zip: 3 KiB; left-out.txt in it names what is missing. Read it before" in out
    missing = found["left-out.txt"]
    assert f"{pod}/healthz.txt: refused\n" in missing
    assert "objects/gpu/serviceaccounts.json: the API server answers 403: not you\n" in missing
    assert "objects/cluster/deviceplugins.json: the API server answers 404" in missing
    assert "previous" not in missing
    assert 0o600 == (tmp_path / "dump.zip").stat().st_mode & 0o777


def test_it_has_a_name_with_the_time_and_says_so_as_json(dump: Dump, tmp_path: Path) -> None:
    status, out = dump("--output=json", "--node=n1")
    told = json.loads(out)
    (path,) = tmp_path.glob("deviceplugin-sysdump-*Z.zip")
    assert (0, path.name, path.stat().st_size) == (status, told["file"], told["bytes"])
    assert told["doctor"] == json.loads(files(path)["doctor.json"])


def test_a_pod_that_does_not_run_has_its_objects_and_its_log(
    dump: Dump, script: Script, tmp_path: Path
) -> None:
    waiting = {"name": "device-plugin", "state": {"waiting": {"reason": "CrashLoopBackOff"}}}
    script.otherwise = Everything(pods=[plugin_pod("p", "", waiting)])
    dump("--file=dump.zip")
    found = files(tmp_path / "dump.zip")
    assert "nodes/none/gpu_p/device-plugin.log" in found
    missing = "nodes/none/gpu_p/doctor.json: its container does not run\n"
    assert missing in found["left-out.txt"]


def test_without_kubectl_the_rest_is_there(dump: Dump, tmp_path: Path) -> None:
    dump("--kubectl=/nowhere", "--file=dump.zip")
    found = files(tmp_path / "dump.zip")
    assert "gpu_p/device-plugin.log: /nowhere: No such file" in found["left-out.txt"]
    assert "/nowhere: No such file or directory" in json.loads(found["versions.json"])["kubectl"]
    assert "objects/gpu/pods.json" in found


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (("--file=there.zip",), 2, "sysdump: --file there.zip: is there already: remove it"),
        (("--file=no/dump.zip",), 2, "sysdump: --file no/dump.zip: No such file or directory"),
        (("--node=n1x", "--file=a.zip"), 2, "sysdump: no node 'n1x'"),
    ],
)
def test_what_cannot_be_written_or_asked_leaves_nothing_behind(
    dump: Dump, tmp_path: Path, words: tuple[str, ...], status: int, said: str
) -> None:
    (tmp_path / "there.zip").write_text("mine")
    found, out = dump(*words)
    assert (status, True) == (found, said in out), out
    assert ["there.zip"] == [path.name for path in tmp_path.glob("*.zip*")]
    assert "mine" == (tmp_path / "there.zip").read_text()


def test_an_archive_is_bounded_and_names_what_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_archive, "MOST_OF_ONE", 1 << 12)
    archive = Archive(tmp_path / "a.zip", most=50)
    archive.add("empty", "")
    archive.add("long", "a" * 500 + "b" * (1 << 12))
    archive.add("late", "x")
    archive.add("needed", "y", is_needed=True)
    archive.close()
    found = files(tmp_path / "a.zip")
    assert {"long": "b" * (1 << 12), "needed": "y", "left-out.txt": found["left-out.txt"]} == found
    lines = ["late: the archive has 0 MiB already", "long: all but the last 4 KiB"]
    assert lines == found["left-out.txt"].splitlines()
