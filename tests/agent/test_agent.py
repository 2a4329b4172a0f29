"""Several plugins in one process: ``device-plugins``."""

import json
import os
import signal
import sys
from collections.abc import Callable
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path
from typing import Any

import pytest

import deviceplugin as dp
from deviceplugin.kit.hosting import Hosted
from deviceplugin.tools.agent import _cli, _sections
from deviceplugin.tools.agent._cli import Maker
from deviceplugin.tools.agent._sections import settings_of
from deviceplugin_gopher import GopherPlugin, GopherSettings
from deviceplugin_testing.fixture import Kubelet
from deviceplugin_testing.simulator import Container, Pod
from plugin_process import started

AGENT = str(Path(sys.executable).with_name("device-plugins"))
GOPHER = "example.com/gopher"
SIMPLE = "example.com/simple-device"
DEVICE = f"simple-device-{os.uname().nodename}"


# On a node.


def test_a_section_that_is_wrong_concerns_only_its_plugin(
    kubelet: Kubelet, write: Callable[..., Path], tmp_path: Path
) -> None:
    config = write(simulated={"number-devices": "many"})
    node, command = kubelet.simulated, f"{AGENT} gopher simulated"
    with started(node.plugin_dir, f"--config={config}", command=command) as agent:
        told = agent.wait_for("discovery failed")
        assert "simulated" == told["plugin"]
        assert f"{config}:1: simulated.number-devices: 'many' is not a" in told["error"]
        node.wait_for(GOPHER, {"alice"})
        write(simulated={"number-devices": 1})
        node.wait_for(SIMPLE, {f"{DEVICE}-0"})
        assert {GOPHER, SIMPLE} == node.registered

        (tmp_path / "others").mkdir()
        (tmp_path / "others/bob").touch()
        write(gopher={"directory": str(tmp_path / "others")}, simulated={"number-devices": 0.5})
        assert "simulated" == agent.wait_for("invalid section ignored")["plugin"]
        node.wait_for(GOPHER, {"bob"}, {"alice"})
        node.wait_for(SIMPLE, {f"{DEVICE}-0"})
        agent.wait_for("configuration reloaded")
        write(simulated={"number-devices": 0.5})
        again = agent.read_until("configuration reloaded")
        assert [] == [one for one in again if "invalid section ignored" == one["event"]]


def test_only_the_plugin_whose_section_has_changed_is_made_anew(
    kubelet: Kubelet, write: Callable[..., Path]
) -> None:
    kinds = {name: _sections.hosted(name) for name in ("gopher", "simulated")}
    settings = settings_of({name: kind.settings for name, kind in kinds.items()})
    makers = [Maker(name, kind.make) for name, kind in kinds.items()]
    first = [make(settings.of_file(write(simulated={"number-devices": 1}))) for make in makers]
    with kubelet.running(*first) as node:
        node.wait_for(SIMPLE, {f"{DEVICE}-0"})
        again = [make(settings.of_file(write(simulated={"number-devices": 2}))) for make in makers]
        node.host.replace(again)
        node.wait_for(SIMPLE, {f"{DEVICE}-0", f"{DEVICE}-1"})
        node.wait_for(GOPHER, {"alice"})
    assert [True, False] == [one is other for one, other in zip(first, again, strict=True)]


def test_a_crash_of_the_process_costs_pods_nothing_and_all_plugins_come_back(
    kubelet: Kubelet, write: Callable[..., Path]
) -> None:
    config = write(simulated={"number-devices": 2})
    node, command = kubelet.simulated, f"{AGENT} gopher simulated"
    pod = Pod("p", [Container("c", {GOPHER: 1})])
    with started(node.plugin_dir, f"--config={config}", command=command) as agent:
        node.wait_for(GOPHER, {"alice"})
        node.wait_for(SIMPLE, {f"{DEVICE}-0", f"{DEVICE}-1"})
        assert node.run(pod)
        assert -signal.SIGSEGV == agent.stop(signal.SIGSEGV)
        node.wait_for(SIMPLE, set(), {f"{DEVICE}-0", f"{DEVICE}-1"})
    refused = node.admit(Pod("q", [Container("c", {SIMPLE: 1})]))
    assert "UnexpectedAdmissionError" == refused.reason
    with started(node.plugin_dir, f"--config={config}", command=command):
        node.wait_for(GOPHER, {"alice"})
        node.wait_for(SIMPLE, {f"{DEVICE}-0", f"{DEVICE}-1"})
        assert {"c": {GOPHER: frozenset({"alice"})}} == node.held(pod)
        assert not node.admit(Pod("r", [Container("c", {GOPHER: 1})]))


# The settings.


def command(*words: str) -> int:
    with pytest.raises(SystemExit) as ended:
        _cli.main(words)
    return int(ended.value.code or 0)


TO_THE_TOP = "is the same for all plugins: move it to the top of the file"


@pytest.mark.parametrize(
    ("words", "sections", "error"),
    [
        (
            ["gopher", "generic"],
            {"generic": {"devices": 7}},
            "generic: discovery failed: {}:1: generic.devices: 7 is not a list",
        ),
        (
            ["gopher", "simulated"],
            {"simulated": {"log-level": "debug"}},
            "simulated: discovery failed: {}:1: simulated.log-level: " + TO_THE_TOP,
        ),
        (["gopher"], {"simulated": {"number-devices": "many"}}, ""),  # it is not named
    ],
)
def test_once_shows_the_devices_of_all_and_what_is_wrong_with_one(
    write: Callable[..., Path],
    capsys: pytest.CaptureFixture[str],
    words: list[str],
    sections: dict[str, Any],
    error: str,
) -> None:
    config = write(**sections)
    assert bool(error) == command(*words, f"--config={config}", "--once", "--output=json")
    shown = capsys.readouterr()
    assert [GOPHER] == [one["name"] for one in json.loads(shown.out)["resources"]]
    assert error.format(config) == shown.err.rstrip()


def test_print_config_shows_each_section_or_refuses_what_is_wrong(
    write: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["gopher", "simulated", f"--config={write(simulated={'number-devices': 3})}"]
    assert 0 == command(*words, "--print-config")
    shown = json.loads(capsys.readouterr().out)
    assert (3, GOPHER) == (shown["simulated"]["number-devices"], shown["gopher"]["resource"])
    assert "plugin-dir" not in shown["gopher"]
    config = write(simulated={"number-devices": -1})
    assert 2 == command(*words, "--print-config")
    wrong = f"{config}:1: simulated: number-devices -1 is not between 0 and 100000"
    out, err = capsys.readouterr()
    assert ("", wrong) == (out, err.partition(": ")[2].rstrip())


# The command line.


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["gophr"], "device-plugins: no plugin 'gophr' is installed: did you mean gopher?\n"),
        (["xy", "gopher"], "device-plugins: no plugin 'xy' is installed: installed: "),
        (["gopher", "gopher"], "device-plugins: gopher is given twice\n"),
        ([], "usage: device-plugins [PLUGIN...]"),
        (["--once"], "usage: device-plugins [PLUGIN...]"),
    ],
)
def test_a_wrong_command_line_is_told(
    words: list[str], expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert 2 == command(*words)
    assert capsys.readouterr().err.startswith(expected)


def test_an_interrupt_before_it_serves_ends_it_without_a_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupt(**_: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(_sections, "entry_points", interrupt)
    assert 130 == command("gopher")
    assert "" == capsys.readouterr().err


def test_help_lists_what_is_installed(capsys: pytest.CaptureFixture[str]) -> None:
    assert 0 == command("--help")
    assert "installed plugins: amd, " in capsys.readouterr().out
    assert 0 == command("gopher", "generic", "--help")
    shown = capsys.readouterr().out
    assert "Run gopher, generic in one process." in shown
    assert "The settings of generic." in shown


# The plugins that a file names.


def test_the_plugins_are_those_with_a_section_in_the_file(
    kubelet: Kubelet, write: Callable[..., Path]
) -> None:
    config = write(simulated={"number-devices": 1}, generic=None)
    with started(kubelet.simulated.plugin_dir, command=AGENT, DP_CONFIG=str(config)) as agent:
        kubelet.simulated.wait_for(GOPHER, {"alice"})
        kubelet.simulated.wait_for(SIMPLE, {f"{DEVICE}-0"})
        told = agent.wait_for("discovery failed")  # generic: a section with nothing in it
        assert ("generic", True) == (told["plugin"], "no devices" in told["error"])
        assert 0 == agent.stop()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            '{"log-levl": "info", "gopher": {}}',
            "{}:1: log-levl: neither an installed plugin nor a setting: did you mean 'log-level'?",
        ),
        (
            '{"gophre": {}}',
            "{}:1: gophre: neither an installed plugin nor a setting: did you mean 'gopher'?",
        ),
        ('{"log-level": "info"}', "{}: no plugin has a section: give some of amd, "),
        ("[1]", "{}:1: must have keys and values"),
        ("{", "{}:1: "),
    ],
)
def test_a_file_that_names_no_plugin_is_refused(
    text: str, expected: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "config.json"
    path.write_text(text)
    assert 2 == command(f"--config={path}", "--once")
    assert capsys.readouterr().err.startswith(f"device-plugins: {expected.format(path)}")


def test_a_file_that_is_not_there_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert 2 == command("--config=/no/such/file.json")
    assert "/no/such/file.json" in capsys.readouterr().err
    assert 2 == command("--config")
    assert capsys.readouterr().err.startswith("usage: ")


# Packages of others.


def hosted() -> Hosted[GopherSettings]:
    return Hosted(GopherPlugin, GopherSettings)


def nothing() -> None: ...


def text() -> Hosted[dp.Settings]:
    return Hosted(lambda _settings: "a lamp", dp.Settings)


@pytest.fixture
def packages(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Installs packages: the value of each name's entry point."""

    def install(*points: tuple[str, str]) -> None:
        group = _sections.GROUP
        found = EntryPoints(EntryPoint(name, value, group) for name, value in points)
        monkeypatch.setattr(_sections, "entry_points", found.select)

    return install


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("no_such_module:hosted", "ModuleNotFoundError: No module named 'no_such_module'"),
        (f"{__name__}:nothing", "its entry point returned None, which is not a Hosted"),
        (f"{__name__}:text", "'a lamp' is not a plugin"),
    ],
)
def test_a_package_that_is_broken_keeps_only_its_plugin_from_running(
    value: str,
    expected: str,
    packages: Callable[..., None],
    write: Callable[..., Path],
    capsys: pytest.CaptureFixture[str],
) -> None:
    packages(("lamp", value), ("gopher", f"{__name__}:hosted"))
    assert 1 == command("gopher", "lamp", f"--config={write()}", "--once")
    shown = capsys.readouterr()
    assert "alice" in shown.out
    assert f"lamp: discovery failed: {expected}" in shown.err


def test_a_name_that_two_packages_have_is_refused(
    packages: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    packages(("gopher", f"{__name__}:hosted"), ("gopher", f"{__name__}:nothing"))
    assert 2 == command("gopher")
    assert "device-plugins: gopher is in several packages\n" == capsys.readouterr().err


def test_every_plugin_with_an_image_can_be_run_beside_others() -> None:
    folders = (Path(__file__).parents[2] / "deployments").glob("*/kustomization.yaml")
    assert {one.parent.name for one in folders} - {"base", "node"} == {*_sections.names()}
