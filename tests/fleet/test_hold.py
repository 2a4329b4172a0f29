"""``kubectl deviceplugin hold`` and ``release``: which pod is asked, and what it is asked."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from cluster.scripted_api import Script
from deviceplugin_cli.hold import _cli
from fleets.plugin_pods import Api, Says, kubectl, plugin_pod


class Cluster:
    """A cluster with these pods on its node n1, whose commands answer from a table."""

    def __init__(self, script: Script, folder: Path, answers: Mapping[str, Says | str]) -> None:
        self._words = [f"--api={script.url}", f"--kubectl={kubectl(folder, answers)}"]
        self._asked = folder / "asked"

    def run(self, command: str, *words: str) -> int:
        return getattr(_cli, command)([*self._words, *words])  # type: ignore[no-any-return]

    def asked(self) -> list[str]:
        return [line.partition(" -- ")[2] for line in self._asked.read_text().splitlines()]


def test_the_plugin_of_the_node_is_asked_in_its_pod(
    script: Script, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script.otherwise = Api(pods=[plugin_pod("p"), plugin_pod("q", "n2")])
    cluster = Cluster(script, tmp_path, {"*": "done\n"})
    flags = ["--all", "--wait", "--timeout=90s", "--resource=a/b"]
    assert 0 == cluster.run("hold", "n1", "gpu-1", "--reason=too hot", *flags)
    assert 0 == cluster.run("hold", "n1")
    assert 0 == cluster.run("release", "n1", "gpu-1", "--output=json")
    assert "done\n" * 3 == capsys.readouterr().out
    hold = "hold --reason=too hot --resource=a/b --output=table --all --wait --timeout=90s -- gpu-1"
    words = [hold, "hold --output=table", "release --output=json -- gpu-1"]
    assert [f"python3 -m deviceplugin {one}" for one in words] == cluster.asked()


def test_of_several_plugins_the_one_that_has_the_device_is_asked(
    script: Script, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script.otherwise = Api(pods=[plugin_pod("p"), plugin_pod("q")])
    none = Says(error="deviceplugin hold: no device here is called 'a'", status=1)
    cluster = Cluster(script, tmp_path, {"*exec?p?*": none, "*": "done\n"})
    assert 0 == cluster.run("hold", "n1", "a", "--reason=x")
    assert "done\n" == capsys.readouterr().out
    assert ["--dry-run" in one for one in cluster.asked()] == [True, True, False]


@pytest.mark.parametrize(
    ("answers", "said"),
    [
        ({"*": "yes"}, "gpu/p, gpu/q have 'a': give --namespace or --selector"),
        ({"*": Says(error="no device here", status=1)}, "gpu/p: no device here"),
    ],
)
def test_nobody_is_asked_if_no_plugin_or_more_than_one_has_the_device(
    script: Script,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    answers: Mapping[str, Says | str],
    said: str,
) -> None:
    script.otherwise = Api(pods=[plugin_pod("p"), plugin_pod("q")])
    cluster = Cluster(script, tmp_path, answers)
    assert 1 == cluster.run("release", "n1", "a")
    assert said in capsys.readouterr().err
    assert all("--dry-run" in one for one in cluster.asked())


@pytest.mark.parametrize(
    ("words", "answer", "status", "said"),
    [
        (["n3", "a"], "", 2, "no plugin runs on node 'n3'"),
        (["n1", "a", "-n", "A"], "", 2, "--namespace 'A': is not the name of a namespace"),
        (["n1", "a"], Says(error="forbidden", status=1), 1, "gpu/p: forbidden"),
        (["n1", "a"], Says(error="no \x1b[31m", status=1), 1, "gpu/p: 'no \\x1b[31m'"),
        (["n1", "a"], Says(status=7), 7, "gpu/p: the command did not end"),
    ],
)
def test_what_goes_wrong_is_said(
    script: Script,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    words: list[str],
    answer: Says | str,
    status: int,
    said: str,
) -> None:
    script.otherwise = Api(pods=[plugin_pod("p")])
    assert status == Cluster(script, tmp_path, {"*": answer}).run("release", *words)
    assert said in capsys.readouterr().err
