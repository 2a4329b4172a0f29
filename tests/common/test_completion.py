"""A shell completes what the programs say in their own --help, here by bash itself."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from deviceplugin.tools.completion._cli import main, programs

BIN = Path(sys.executable).parent
PATH = f"{BIN}{os.pathsep}{os.environ['PATH']}"
ASK = """
while read -r line; do
  eval "COMP_WORDS=($line)" COMP_CWORD='$((${#COMP_WORDS[@]} - 1))'
  _deviceplugin
  echo "${COMPREPLY[*]}"
done
"""


def bash(script: str, asked: str = "", path: str = PATH) -> str:
    return subprocess.check_output(
        ["bash", "-c", script], input=asked, text=True, env=os.environ | {"PATH": path}
    )


@pytest.fixture
def functions(capsys: pytest.CaptureFixture[str]) -> str:
    """What bash reads, with another program."""
    assert 0 == main(["bash", "lamp-device-plugin"])
    return capsys.readouterr().out


@pytest.mark.parametrize(
    "cases",
    [
        {
            "deviceplugin d": "doctor devices drain",
            "deviceplugin devices --plugin-": "--plugin-token-file --plugin-ca-file",
            "deviceplugin devices --output ''": "table json",
            "deviceplugin devices --output = j": "json",
            "deviceplugin devices --output =": "table json",
            "deviceplugin devices --plugin ''": "",
            "deviceplugin conformance -- --o": "",
        },
        {"deviceplugin drain ''": "dra device-plugin", "deviceplugin none --o": ""},
        {
            "generic-device-plugin ''": "check explain",
            "generic-device-plugin --log-level ''": "debug info warning error",
            "generic-device-plugin --log-level debug --onc": "--once",
            "generic-device-plugin explain --s": "--subsystem",
        },
        {"kubectl-deviceplugin fl": "fleet", "kubectl-deviceplugin --pro": "--problems"},
        {"no-such-device-plugin --x": "", f"{BIN}/deviceplugin fl": "fleet"},
    ],
    ids=["deviceplugin", "choices", "plugin", "kubectl", "paths"],
)
def test_words_flags_and_values_are_those_of_the_help(
    functions: str, cases: dict[str, str]
) -> None:
    said = bash(f"{functions}\n{ASK}", "\n".join([*cases, ""]))
    assert [*cases.values()] == said.splitlines()


def test_every_program_that_is_installed_or_named_is_completed(functions: str) -> None:
    words = bash(f"{functions}\ncomplete -p").split()
    assert {*programs(), "lamp-device-plugin", "gpu-device-plugin"} <= {*words}


def test_kubectl_asks_a_program_of_its_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert 0 == main(["kubectl"])
    program = tmp_path / "kubectl_complete-deviceplugin"
    program.write_text(capsys.readouterr().out)
    program.chmod(0o755)
    path = f"{tmp_path}{os.pathsep}{PATH}"
    assert ["--node", "--no-pods", ":0"] == bash(f"{program.name} fleet --no", path=path).split()


def test_another_shell_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert 2 == main(["fish"])
    assert "invalid choice: 'fish' (choose from" in capsys.readouterr().err
