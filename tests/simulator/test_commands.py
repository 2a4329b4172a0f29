"""The command lines ``deviceplugin kubelet`` and ``deviceplugin stub``."""

import io
import os
import re
import signal
import socket
import sys
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from deviceplugin.proto.v1beta1 import deviceplugin_pb2 as pb
from deviceplugin_testing.simulator import SimulatedKubelet, StubPlugin
from deviceplugin_testing.tools._console import Command, CommandError, Console, listening, send
from deviceplugin_testing.tools.kubelet import _cli as _kubelet_cli
from deviceplugin_testing.tools.kubelet._commands import KubeletCommands, LeapingClock, LiveView
from deviceplugin_testing.tools.stub import _cli as _stub_cli
from deviceplugin_testing.tools.stub._cli import StubCommands
from kubelets.equipped import PRE_START, Kubelet, R, allocated

# Console


def echo(*words: str) -> str:
    if "fail" in words:
        raise CommandError("told to fail")
    return " ".join(words)


@pytest.fixture
def out() -> io.StringIO:
    return io.StringIO()


@pytest.fixture
def console(out: io.StringIO) -> Console:
    return Console({"echo": Command(echo, "WORD [MORE...]", "say it")}, out)


def test_a_line_is_a_command_and_its_words(console: Console) -> None:
    assert "a b  c" == console.execute("echo a 'b  c'  # a comment")
    assert "" == console.execute("  # only a comment")
    assert "" == console.execute("sleep 0")


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("nonsense", "unknown command 'nonsense'; try help"),
        ("echo", r"usage: echo WORD \[MORE...\]"),
        ("help me", "usage: help"),
        ("echo 'open", "No closing quotation"),
        ("sleep long", "'long' is not a number"),
        ("sleep nan", "'nan' is not a number"),
    ],
)
def test_a_wrong_line_is_told(console: Console, line: str, complaint: str) -> None:
    with pytest.raises(CommandError, match=complaint):
        console.execute(line)


def test_help_lists_the_commands(console: Console) -> None:
    first, *_, last = console.execute("help").splitlines()
    assert "echo WORD [MORE...]  say it" == first
    assert last.startswith("quit ")


def test_a_script_ends_at_the_first_failure(console: Console, out: io.StringIO) -> None:
    assert not console.run_script(io.StringIO("echo one\necho fail\necho two\n"))
    assert "one\nerror: told to fail\n" == out.getvalue()


def test_a_script_ends_at_quit(console: Console, out: io.StringIO) -> None:
    assert console.run_script(io.StringIO("echo one\nquit\necho two\n"))
    assert "one\n" == out.getvalue()
    assert console.running.is_over()


def test_a_script_that_sleeps_ends_when_it_is_time_to_stop(
    console: Console, out: io.StringIO
) -> None:
    script = threading.Thread(
        target=console.run_script, args=(io.StringIO("sleep inf\necho two\n"),)
    )
    script.start()
    console.execute("quit")
    script.join()
    assert "" == out.getvalue()


def test_typing_goes_on_after_a_failure(console: Console, out: io.StringIO) -> None:
    console.read(io.StringIO("echo fail\necho two\n"))
    assert "error: told to fail\ntwo\n" == out.getvalue()
    assert console.running.is_over()


def test_commands_come_over_a_socket(console: Console, out: io.StringIO, root: Path) -> None:
    path = root / "control.sock"
    with listening(console, path):
        assert send(path, "echo one", out)
        assert send(path, "sleep 0", out)
        assert not send(path, "echo fail", out)
        assert "one\nerror: told to fail\n" == out.getvalue()
    assert not path.exists()
    with pytest.raises(OSError, match="No such file"):
        send(path, "echo one", out)


def test_a_command_that_is_not_answered_was_not_carried_out(out: io.StringIO, root: Path) -> None:
    path = root / "control.sock"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        server.listen()

        def hang_up() -> None:
            client, _ = server.accept()
            client.recv(100)
            client.close()

        answering = threading.Thread(target=hang_up)
        answering.start()
        assert not send(path, "echo one", out)
        answering.join()


# Commands to the kubelet


@pytest.fixture
def node(kubelet: Kubelet, out: io.StringIO) -> Console:
    """A console on a kubelet."""
    return Console(KubeletCommands(kubelet, LeapingClock()).table, out)


def test_status_shows_everything(node: Console, kubelet: Kubelet) -> None:
    assert f"kubelet: listening on {kubelet.kubelet_socket}" == node.execute("status")
    assert "the node has no devices" == node.execute("node-status")
    kubelet.plugin(devices={"a": "Healthy", "b": "Unhealthy"})
    node.execute("admit p x.io/dev=1")
    node.execute("node-status")
    with kubelet._live().loop.operation("something"):
        assert "busy: something" in node.execute("status").splitlines()
    kubelet.clock.advance(1)
    assert node.execute("status").splitlines()[1:] == [
        "x.io/dev: registered, 1 healthy (a), 1 unhealthy (b)",
        "node x.io/dev: capacity 2, allocatable 1",
        "pod p: Running, main has a of x.io/dev",
    ]
    node.execute("terminate p")
    assert "pod p: Succeeded" == node.execute("status").splitlines()[-1]
    node.execute("delete p")
    assert "pod p" not in node.execute("status")


def test_an_admitted_pod_shows_what_it_gets(
    kubelet: Kubelet, node: Console, tmp_path: Path
) -> None:
    stub = kubelet.plugin(devices=["a"], options=PRE_START)
    stub.on_allocate = lambda _ids: allocated(
        envs={"A": "1"},
        mounts=[pb.Mount(host_path="/h", container_path="/c")],
        devices=[pb.DeviceSpec(host_path="/dev/a", container_path="/dev/b")],
        annotations={"k": "v"},
        cdi_devices=[pb.CDIDevice(name="v.io/c=1")],
    )
    manifest = tmp_path / "pod.json"
    manifest.write_text(
        '{"kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": ['
        '{"name": "main", "resources": {"limits": {"x.io/dev": 1}}}, {"name": "other"}]}}'
    )
    gets = [
        "main: env A=1",
        "main: mount /h on /c",
        "main: device /dev/a as /dev/b",
        "main: annotation k=v",
        "main: CDI device v.io/c=1",
    ]
    shown = node.execute(f"admit {manifest}").splitlines()
    assert ["p: admitted", *gets, "other: no devices"] == shown
    started = node.execute("start-container p main").splitlines()
    assert ["main: started", *gets] == started
    assert [["a"], ["a"]] == stub.pre_started
    with pytest.raises(CommandError, match="pod p has no container none"):
        node.execute("start-container p none")
    with pytest.raises(CommandError, match="pod default/p was admitted before"):
        node.execute(f"admit {manifest}")


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("admit p x.io/dev=1", "p: UnexpectedAdmissionError: Pod was rejected: .* no healthy"),
        ("admit p x.io/dev", "'x.io/dev' is not RESOURCE=COUNT"),
        ("admit none.yaml", "none.yaml: No such file or directory"),
        ("terminate none", "there is no pod 'none'"),
        ("drop x.io/none", "x.io/none has no connection"),
        ("wait x.io/dev 3 0", "waited 0 s for x.io/dev to have 3 healthy devices"),
        ("start", "running already"),
    ],
)
def test_what_cannot_be_done_is_told(
    kubelet: Kubelet, node: Console, line: str, complaint: str
) -> None:
    kubelet.plugin(devices={"a": "Unhealthy"})
    with pytest.raises(CommandError, match=complaint):
        node.execute(line)


def test_the_kubelet_is_stopped_started_and_disturbed(node: Console, kubelet: Kubelet) -> None:
    stub = kubelet.plugin()
    node.execute("wait x.io/dev 2")
    node.execute("drop x.io/dev")
    stub.wait(lambda: stub.streams == 0)
    node.execute("delete-socket")
    assert not kubelet.kubelet_socket.exists()
    node.execute("admit p")
    node.execute("admit q")
    node.execute("terminate p")
    node.execute("delete q")
    node.execute("stop")
    assert ["kubelet: stopped", "pod p: Succeeded"] == node.execute("status").splitlines()
    with pytest.raises(CommandError, match="the kubelet is not running"):
        node.execute("node-status")
    node.execute("start")
    node.execute("restart")
    assert kubelet.kubelet_socket.exists()


def test_time_can_be_skipped(root: Path, out: io.StringIO) -> None:
    clock = LeapingClock()
    with (
        SimulatedKubelet(root, clock=clock) as kubelet,
        StubPlugin(kubelet.plugin_dir, R, ["a"]) as stub,
    ):
        node = Console(KubeletCommands(kubelet, clock).table, out)
        node.execute("wait x.io/dev 1")
        stub.stop()
        kubelet.wait_for(R, (), {"a"})
        assert "node x.io/dev: capacity 1, allocatable 0" == node.execute("node-status")
        node.execute("advance 301")
        assert "node x.io/dev: capacity 0, allocatable 0" == node.execute("node-status")


# Live view


def test_changes_are_shown_as_they_happen(kubelet: Kubelet) -> None:
    lines: list[str] = []
    told = threading.Condition()

    def show(line: str) -> None:
        with told:
            lines.append(line)
            told.notify_all()

    def wait_for(line: str) -> None:
        with told:
            assert told.wait_for(lambda: line in lines, 5), lines

    with LiveView(kubelet, show):
        wait_for(f"kubelet: listening on {kubelet.kubelet_socket}")
        stub = kubelet.plugin(devices=["a"])
        wait_for("x.io/dev: registered, 1 healthy (a), 0 unhealthy")
        stub.hold("Allocate")
        console = Console(KubeletCommands(kubelet, LeapingClock()).table, io.StringIO())
        admitting = threading.Thread(target=console.execute, args=("admit p x.io/dev=1",))
        admitting.start()
        wait_for("busy: admitting pod default/p")
        stub.release()
        admitting.join()
        wait_for("pod p: Running, main has a of x.io/dev")
        wait_for("busy: gone")
        kubelet.stop()
        wait_for("kubelet: stopped")
        wait_for("x.io/dev: gone")


# deviceplugin kubelet


class Cli:
    """Runs the commands, with a script if there is one; returns status, output and errors."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self._script, self._capsys = folder / "script.txt", capsys

    def kubelet(self, *words: object, script: str = "") -> tuple[int, str, str]:
        return self._run(_kubelet_cli.main, words, script)

    def stub(self, *words: object, script: str = "") -> tuple[int, str, str]:
        return self._run(_stub_cli.main, words, script)

    def _run(self, main: Any, words: Iterable[object], script: str) -> tuple[int, str, str]:
        self._script.write_text(script)
        more = ["--script", str(self._script)] if script else []
        status = main([*map(str, words), *more])
        return status, *self._capsys.readouterr()


@pytest.fixture
def cli(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Cli:
    return Cli(tmp_path, capsys)


def test_kubelet_carries_out_a_script(root: Path, cli: Cli) -> None:
    status, out, _ = cli.kubelet(root, "--quiet", "--fixed", script="status\nadmit p\n")
    expected = f"kubelet: listening on {root}/device-plugins/kubelet.sock\np: admitted\n"
    assert (0, True) == (status, out.startswith(expected))
    assert (1, "error: unknown command 'nonsense'; try help\n") == (
        cli.kubelet(root, "--quiet", script="nonsense")[:2]
    )


def test_kubelet_is_of_the_release_that_is_asked_for(root: Path, cli: Cli) -> None:
    file = root / "device-plugins" / "file"
    file.parent.mkdir()
    file.touch()
    assert 0 == cli.kubelet(root, "--quiet", script="status\n")[0]
    assert file.exists()
    assert 0 == cli.kubelet(root, "--quiet", "--version", "1.32", script="status\n")[0]
    assert not file.exists()


def test_kubelet_makes_a_directory_and_removes_it(
    monkeypatch: pytest.MonkeyPatch, cli: Cli
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("status\n"))
    status, out, _ = cli.kubelet("--script", "-", "--quiet")
    path = Path(out.split()[-1])
    assert (0, "kubelet.sock") == (status, path.name)
    assert not path.parent.exists()


@pytest.mark.parametrize(
    ("argv", "expected", "complaint"),
    [
        (["--nonsense"], 2, "unknown argument"),
        (["--numa-nodes", "x"], 2, "--numa-nodes x: not numbers separated by commas"),
        (["--version", "1.38"], 2, "invalid choice: '1.38' (choose from '1.26', "),
        (["ROOT/" + "x" * 100], 1, "use a shorter root"),
        (["ROOT", "--script", "ROOT/none"], 1, "kubelet: ROOT/none: No such file or directory"),
        (["ROOT", "--send", "status"], 1, "no kubelet runs here"),
        (["RUNNING"], 2, "a kubelet is listening here already"),
    ],
)
def test_kubelet_tells_why_it_cannot_start(
    kubelet: Kubelet, cli: Cli, argv: list[str], expected: int, complaint: str
) -> None:
    places = {"RUNNING": str(kubelet.root), "ROOT": str(kubelet.root / "another")}
    words = [re.sub("ROOT|RUNNING", lambda found: places[found[0]], word) for word in argv]
    status, _, errors = cli.kubelet(*words)
    complaint = complaint.replace("ROOT", places["ROOT"])
    assert (expected, True) == (status, complaint in errors)
    assert kubelet.kubelet_socket.exists()


def test_stub_tells_why_it_cannot_start(cli: Cli, tmp_path: Path) -> None:
    status, _, errors = cli.stub("x.io/a", "1", "--dir", tmp_path / "none")
    expected = f"deviceplugin stub: --dir {tmp_path}/none: is not a directory; "
    assert (2, True) == (status, errors.startswith(expected))
    (tmp_path / "a.sock").mkdir()
    status, _, errors = cli.stub("x.io/a", "1", "--dir", tmp_path, "--name=a.sock")
    assert (1, 1) == (status, len(errors.splitlines())), errors


def test_commands_explain_themselves(cli: Cli) -> None:
    for run, example in (
        (cli.kubelet, "deviceplugin kubelet /tmp/kubelet"),
        (cli.stub, "example.com/thing"),
    ):
        status, out, _ = run("--help")
        assert (0, True) == (status, example in out)
    assert 2 == cli.stub()[0]


class Watched(io.StringIO):
    """Standard output that tells when something was written to it."""

    def __init__(self) -> None:
        super().__init__()
        self.written = threading.Event()

    def write(self, text: str) -> int:
        self.written.set()
        return super().write(text)


def test_kubelet_takes_commands_from_elsewhere_until_it_is_told_to_stop(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    monkeypatch.setattr(sys, "stdout", out := Watched())
    results: list[int] = []

    def elsewhere() -> None:
        out.written.wait(5)
        results.append(_kubelet_cli.main([str(root), "--send", "admit", "p"]))
        results.append(_kubelet_cli.main([str(root), "--send", "nonsense"]))
        os.kill(os.getpid(), signal.SIGTERM)

    sender = threading.Thread(target=elsewhere)
    sender.start()
    assert 0 == _kubelet_cli.main([str(root), "--node-status-interval", "10ms"])
    sender.join()
    assert [0, 1] == results
    assert "p: admitted\n" in out.getvalue()
    assert "error: unknown command 'nonsense'; try help\n" in out.getvalue()


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_kubelet_takes_what_is_typed(root: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli) -> None:
    monkeypatch.setattr(sys, "stdin", Terminal("admit p\n"))
    assert (0, "p: admitted\nmain: no devices\n") == cli.kubelet(root, "--quiet")[:2]


# deviceplugin stub


@pytest.fixture
def scripted(kubelet: Kubelet, out: io.StringIO) -> Console:
    """A console on a plugin that is registered."""
    return Console(StubCommands(kubelet.plugin()).table, out)


def test_a_stub_does_what_it_is_told(scripted: Console, kubelet: Kubelet) -> None:
    scripted.execute("devices a b:x c:d:Healthy e:f:")
    kubelet.wait_for(R, {"a", "c:d"}, {"b", "e:f"})
    scripted.execute("end-stream")
    kubelet.wait_for(R, (), {"a", "b", "c:d", "e:f"})
    assert "registered x.io/dev" == scripted.execute("register")
    scripted.execute("wait ListAndWatch 2")
    expected = ["GetDevicePluginOptions", "ListAndWatch"] * 2
    assert expected == scripted.execute("calls").splitlines()
    scripted.execute("stop")
    scripted.execute("start")
    scripted.execute("fail GetDevicePluginOptions internal not now")
    with pytest.raises(CommandError, match=r"not registered: UNKNOWN: .* desc = not now"):
        scripted.execute("register")
    scripted.execute("heal")
    scripted.execute("hold Allocate")
    scripted.execute("release")
    assert "registered x.io/dev" == scripted.execute("register")


def test_a_stub_tells_what_cannot_be_done(
    scripted: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(CommandError, match="unknown code 'bad'; known are OK, CANCELLED"):
        scripted.execute("fail Allocate bad")
    monkeypatch.setattr("deviceplugin_testing.tools.stub._cli.PATIENCE", 0)
    with pytest.raises(CommandError, match="waited 0 s"):
        scripted.execute("wait Allocate")


def test_stub_registers_or_may_be_found_and_carries_out_a_script(
    kubelet: Kubelet, cli: Cli
) -> None:
    argv = [R, "a", "b:", "--dir", kubelet.plugin_dir, "--pre-start", "--prefer"]
    expected = f"listening on {kubelet.plugin_dir}/stub.sock\nregistered x.io/dev\n"
    assert (0, expected) == cli.stub(*argv, script="wait ListAndWatch")[:2]
    assert kubelet.options(R) == pb.DevicePluginOptions(
        pre_start_required=True, get_preferred_allocation_available=True
    )
    argv = [R, "a", "--dir", kubelet.registry_dir, "--watched"]
    expected = f"listening on {kubelet.registry_dir}/stub.sock\nnone\n"
    assert (0, expected) == cli.stub(*argv, script="calls")[:2]


def test_stub_tells_why_it_is_refused(kubelet: Kubelet, cli: Cli) -> None:
    status, _, errors = cli.stub("nodomain", "--dir", kubelet.plugin_dir)
    expected = 'deviceplugin stub: not registered: UNKNOWN: the ResourceName "nodomain" is invalid'
    assert (1, True) == (status, expected in errors)
