"""Our own plugins pass every check, as commands of their own and with all that a user sees."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

import conformant
from deviceplugin_testing.conformance import CHECKS
from deviceplugin_testing.simulator import NEWEST, RELEASES
from deviceplugin_testing.tools.conformance import _cli, main

BIN = Path(sys.executable).parent
GOPHER = [str(BIN / "gopher-device-plugin"), "--directory={devices_dir}"]
TEMPLATE = [sys.executable, "-m", "deviceplugin_template"]
TOGGLE = "rm {devices_dir}/dev0; touch {devices_dir}/new"


@pytest.fixture(autouse=True)
def shorter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_cli, "QUICK", conformant.SHORT)


@pytest.mark.slow
def test_the_gopher_plugin_passes_all_that_apply(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    junit = tmp_path / "report.xml"
    files = ["--output=json", f"--junit={junit}"]
    status = main(["--quick", "--seed=1", "--trigger-change", TOGGLE, *files, "--", *GOPHER])
    report, out = capsys.readouterr()
    document = json.loads(report)
    found = {check["id"]: check["verdict"] for check in document["checks"]}
    assert "fail" not in found.values(), out
    assert 0 == status
    assert [check.id for check in CHECKS] == list(found)
    assert {
        "allocation.unhealthy-refused",
        "allocation.device-nodes",
        "allocation.mounts",
        "allocation.cdi-names",
        "overlap.quiet",
        "overlap.older-ends",
        "overlap.newer-killed",
    } == {id_ for id_, verdict in found.items() if verdict == "n/a"}
    assert ("example.com/gopher", 1) == (document["resource"], document["seed"])
    assert "56 passed, 0 failed, 7 not applicable" in out
    assert "\x1b" not in out
    cases = ET.parse(junit).getroot().findall("testsuite/testcase")
    assert list(found) == [case.get("name") for case in cases]
    assert 7 == sum(case.find("skipped") is not None for case in cases)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("release", "groups", "skipped"),
    [
        (RELEASES[0], ("registration", "allocation", "restart.again"), 4),
        (NEWEST, ("registration", "overlap"), 0),
    ],
)
def test_the_gopher_plugin_passes_on_the_kubelets_of_other_releases(
    capsys: pytest.CaptureFixture[str], release: str, groups: Sequence[str], skipped: int
) -> None:
    only = [f"--only={name}" for name in groups]
    assert 0 == main([f"--kubelet-version={release}", "--quick", "--seed=1", *only, "--", *GOPHER])
    assert f" {skipped} not applicable on Kubernetes {release} in " in capsys.readouterr().out


@pytest.mark.slow
def test_the_template_plugin_passes_all_that_its_devices_have_to_do_with(tmp_path: Path) -> None:
    for number in (0, 1):
        (tmp_path / f"ttyUSB{number}").symlink_to("/dev/null")
    plug = f"rm {tmp_path}/ttyUSB1 || ln -s /dev/null {tmp_path}/ttyUSB1"
    passed = conformant.check([*TEMPLATE, f"--directory={tmp_path}"], plug)
    assert "allocation.device-nodes" in passed
