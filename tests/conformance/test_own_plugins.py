"""Our own plugins pass every check, as commands of their own and with all that a user sees."""

import json
import sys
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

import conformant
from conformant import PATIENT
from deviceplugin_testing.conformance import CHECKS
from deviceplugin_testing.tools.conformance import _cli, main

BIN = Path(sys.executable).parent
GOPHER = [str(BIN / "gopher-device-plugin"), "--directory={devices_dir}"]
TEMPLATE = [sys.executable, "-m", "deviceplugin_template"]
TOGGLE = "rm {devices_dir}/dev0; touch {devices_dir}/new"

SHORT = replace(PATIENT, quiet=1, settle=0.3, look=0.5, down=0.7, restarts=3, leak_restarts=5)


@pytest.fixture(autouse=True)
def shorter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_cli, "QUICK", SHORT)


def verdicts(document: dict[str, list[dict[str, str]]]) -> dict[str, str]:
    return {check["id"]: check["verdict"] for check in document["checks"]}


def test_the_gopher_plugin_passes_all_that_apply(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report, junit = tmp_path / "report.json", tmp_path / "report.xml"
    files = [f"--json={report}", f"--junit={junit}"]
    status = main(["--quick", "--seed=1", "--trigger-change", TOGGLE, *files, "--", *GOPHER])
    out = capsys.readouterr().out
    document = json.loads(report.read_text())
    found = verdicts(document)
    assert [] == [check for check in document["checks"] if check["verdict"] == "fail"]
    assert 0 == status
    assert [check.id for check in CHECKS] == list(found)
    assert {
        "allocation.unhealthy-refused",
        "allocation.device-nodes",
        "allocation.mounts",
        "allocation.cdi-names",
    } == {id_ for id_, verdict in found.items() if verdict == "n/a"}
    assert ("example.com/gopher", 1) == (document["resource"], document["seed"])
    assert "56 passed, 0 failed, 4 not applicable" in out
    assert "\x1b" not in out
    cases = ET.parse(junit).getroot().findall("testsuite/testcase")
    assert list(found) == [case.get("name") for case in cases]
    assert 4 == sum(case.find("skipped") is not None for case in cases)


@pytest.mark.parametrize("version", ["1.26", "1.28", "1.33"])
def test_the_gopher_plugin_passes_on_kubelets_of_earlier_releases(
    version: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report = tmp_path / "report.json"
    only = [f"--only={group}" for group in ("registration", "lists", "allocation", "restart")]
    words = [f"--kubelet-version={version}", "--quick", "--seed=1", *only, f"--json={report}"]
    assert 0 == main([*words, "--", *GOPHER])
    document = json.loads(report.read_text())
    assert "fail" not in verdicts(document).values()
    assert version == document["kubelet_version"]
    assert f"on Kubernetes {version} in " in capsys.readouterr().out


def test_the_template_plugin_passes_all_that_apply(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = tmp_path / "ttyUSB0", tmp_path / "ttyUSB1"
    for path in (first, second):
        path.symlink_to("/dev/null")
    plug = f"rm {second} || ln -s /dev/null {second}"
    passed = conformant.check([*TEMPLATE, f"--directory={tmp_path}"], plug)
    assert {"allocation.device-nodes", "hot-plug.keeps-ids"} <= passed
    assert "example.com/serial: " in capsys.readouterr().out


def test_a_plugin_without_a_device_is_told_to_get_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_cli, "QUICK", replace(SHORT, start=2.0))
    words = ["--quick", "--only=registration.in-time", "--", *TEMPLATE, f"--directory={tmp_path}"]
    assert 1 == main(words)
    expected = (
        "no call of Register within 2 s; a plugin may wait until it has a device: give it one"
    )
    assert expected in capsys.readouterr().out
