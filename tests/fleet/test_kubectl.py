"""The command as a plugin of kubectl, and on a cluster that the operator looks after."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from cluster.scripted_api import Script
from deviceplugin import __main__ as program
from deviceplugin_cli.fleet._cli import main
from fleets.objects import having, node
from operators import fleet_cluster
from operators.managed import Managed

COMMAND = Path(sys.executable).with_name("kubectl-deviceplugin")
SUM = "example.com/gpu: 1 of 1 healthy on 1 node, 0 held\n"


def config(folder: Path, url: str) -> Path:
    path = folder / "config"
    path.write_text(
        "current-context: c\n"
        f"clusters: [{{name: k, cluster: {{server: '{url}'}}}}]\n"
        "contexts: [{name: c, context: {cluster: k}}]\n"
    )
    return path


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="needs kubectl")
def test_kubectl_finds_it_by_its_name(script: Script, tmp_path: Path) -> None:
    script.otherwise = having([node("n", gpu=(1, 1))])
    environ = os.environ | {"KUBECONFIG": str(config(tmp_path, script.url))}
    environ["PATH"] = f"{COMMAND.parent}{os.pathsep}{environ['PATH']}"
    told = ["kubectl", "deviceplugin", "--summary"]
    assert SUM == subprocess.check_output(told, env=environ, text=True)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["docter"], "deviceplugin: unknown command 'docter': did you mean 'doctor'?"),
        (["devices", "--nonsense"], "deviceplugin devices: unknown argument '--nonsense'"),
        (
            ["--problem"],
            "deviceplugin fleet: unknown argument '--problem': did you mean --problems?",
        ),
    ],
)
def test_by_that_name_options_without_a_command_are_for_the_fleet(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    monkeypatch.setattr(sys, "argv", ["/usr/bin/kubectl-deviceplugin", *words])
    assert 2 == program.main()
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "command"),
    [
        (["doctor"], "cluster-doctor"),
        (["doctor", "--pod=default/a"], "doctor"),
        (["sysdump"], "sysdump"),
    ],
)
def test_by_that_name_the_doctor_is_that_of_the_cluster(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: list[str],
    command: str,
) -> None:
    monkeypatch.setattr(sys, "argv", ["kubectl-deviceplugin", *words, "--nonsense"])
    assert 2 == program.main()
    assert f"deviceplugin {command}: " in capsys.readouterr().err


def test_its_version_is_that_of_the_framework(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["kubectl-deviceplugin", "--version"])
    assert 0 == program.main()
    assert "deviceplugin 0.1.0\n" == capsys.readouterr().out


def test_its_help_lists_the_commands(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["kubectl-deviceplugin", "--help"])
    assert 0 == program.main()
    assert "kubectl deviceplugin          the same" in capsys.readouterr().out


def test_what_the_operator_makes_is_listed(capsys: pytest.CaptureFixture[str]) -> None:
    with fleet_cluster.running(3) as fleet:
        operator = Managed(fleet)
        operator.start()
        try:
            operator.install({"number-devices": 4})
            assert 0 == main([f"--api={fleet.url}", "--check"])
            well = capsys.readouterr().out
            operator.apply({"seed": 13})
            operator.wait_for("RollingOut")
            assert 3 == main([f"--api={fleet.url}", "--check"])
        finally:
            operator.stop()
    assert "example.com/simple-device: 12 of 12 healthy on 3 nodes, 0 held" in well
    assert "DevicePlugin" not in well
    assert "DevicePlugin sim: not ready: RollingOut: " in capsys.readouterr().out
