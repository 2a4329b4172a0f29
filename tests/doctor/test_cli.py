"""The command, its reports and its exit status."""

import json
import sys
from pathlib import Path

import pytest

from deviceplugin.checks import Finding, Node, Verdict
from deviceplugin.tools.doctor import _cli
from deviceplugin.tools.doctor._check import Result
from deviceplugin.tools.doctor._cli import FORMAT, main
from deviceplugin.tools.doctor.checks import all_checks

DOCUMENT_KEYS = ["format", "deviceplugin", "root", "user", "failed", "counts", "findings"]
FINDING_KEYS = ["check", "verdict", "looked_at", "found", "means", "do"]


def test_the_status_is_0_and_little_is_said_where_nothing_is_wrong(
    node: Node, capsys: pytest.CaptureFixture[str]
) -> None:
    assert 0 == main([f"--root={node.root}", "--only=kubelet-socket", "--only=mode"])
    expected = "0 failures, 0 warnings, 0 unknown, 2 ok; nothing was changed\n"
    assert expected == capsys.readouterr().out
    assert 0 == main([f"--root={node.root}", "--only=kubelet-socket", "--verbose"])
    first = f"ok       kubelet-socket  {node.plugin_dir}/kubelet.sock: the kubelet answers"
    assert first == capsys.readouterr().out.splitlines()[0]


def test_a_failure_is_told_with_what_it_means_and_what_to_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert 1 == main([f"--root={tmp_path}", "--only=mode", "--registration=self"])
    assert [
        f"failure  mode  registration=self: there is no {tmp_path}/var/lib/kubelet/device-plugins",
        "         means: a plugin waits until one is there, and its devices are not advertised.",
        "         do:    mount the directory at the same path as on the node.",
        "",
        "1 failure, 0 warnings, 0 unknown, 0 ok; nothing was changed",
    ] == capsys.readouterr().out.splitlines()


def test_json_has_everything_and_nothing_is_changed(
    node: Node, capsys: pytest.CaptureFixture[str]
) -> None:
    def state() -> dict[str, object]:
        found = sorted(node.root.rglob("*"))
        return {str(path): (path.lstat().st_mtime_ns, path.lstat().st_mode) for path in found}

    (node.plugin_dir / "kubelet.sock").unlink()
    before = state()
    assert 1 == main([f"--root={node.root}", "--output=json"])
    assert before == state()
    document = json.loads(capsys.readouterr().out)
    assert DOCUMENT_KEYS == list(document)
    assert FORMAT == document["format"]
    assert document["failed"]
    assert [verdict.value for verdict in Verdict] == list(document["counts"])
    assert len(document["findings"]) == sum(document["counts"].values())
    for finding in document["findings"]:
        assert FINDING_KEYS == list(finding)
        assert all(isinstance(value, str) for value in finding.values())
    assert {check.name for check in all_checks()} == {
        each["check"] for each in document["findings"]
    }


def test_settings_are_those_of_the_environment(
    node: Node, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DP_REGISTRATION", "watcher")
    assert 0 == main([f"--root={node.root}", "--only=mode", "-v"])
    assert "registration=watcher" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--root=/no/such"], "--root '/no/such' is not a directory"),
        (["--timeout=0"], "--timeout: '0' is not a duration above zero, such as 30s"),
        (["--only=kubelet-sock"], "no check 'kubelet-sock': did you mean kubelet-socket?"),
        (["--only=xyz"], "no check 'xyz': --list shows all"),
        (["--registration=x"], "registration"),
        (["--frobnicate"], "unknown argument '--frobnicate'"),
        (["--plugin=toaster"], "--plugin toaster: is not installed here: there are amd, fpga"),
        (["--plugin=gpuu"], "--plugin gpuu: is not installed here: did you mean gpu?"),
    ],
)
def test_a_wrong_command_line_exits_with_2(
    words: list[str], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert 2 == main(words)
    assert text in capsys.readouterr().err


def test_a_plugin_without_a_check_is_none_that_is_wrong(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert 0 == main([f"--root={root}", "--only=versions", "--plugin=gopher", "--verbose"])
    assert "gopher: has no check of its own" in capsys.readouterr().out


def test_an_extra_that_is_missing_is_named(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in [one for one in sys.modules if one.startswith("deviceplugin.tools.doctor.pods")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "deviceplugin.apiserver", None)
    assert 2 == main(["--pod=ns/p"])
    assert "--pod needs urllib3: pip install urllib3" in capsys.readouterr().err
    words = ["--only=dra-cluster", "--protocol=dra", "--api-server=http://127.0.0.1:1"]
    assert 0 == main([f"--root={root}", *words])
    assert "needs deviceplugin.apiserver, which is not installed" in capsys.readouterr().out


def test_all_checks_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert 0 == main(["--list"])
    lines = capsys.readouterr().out.splitlines()
    assert [check.name for check in all_checks()] == [line.split()[0] for line in lines]


def test_colours_are_for_terminals() -> None:
    results = [Result("check", Finding(Verdict.FAILURE, "path", "is  not\n\x1b[2Jhere\u202e"))]
    assert "\x1b[1;31mfailure\x1b[0m  check  path: is not [2Jhere" in _cli.text(
        results, verbose=False, colour=True
    )
