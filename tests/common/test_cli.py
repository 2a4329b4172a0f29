import json
import re
import signal
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import partial
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from types import MappingProxyType
from typing import Any

import pytest

import deviceplugin as dp
import deviceplugin_gopher
from deviceplugin._config.loading import key
from deviceplugin_testing.fixture import Kubelet
from plugin_process import GOPHER, run, started

RESOURCE = "example.com/gopher"
SERIAL = '''
"""Advertise serial adapters.

Not for the usage text.
"""

from dataclasses import dataclass, field
from pathlib import Path
import os, signal
import deviceplugin as dp

class Serial(dp.Plugin):
    resource = "x.io/serial"

    def discover(self):
        yield dp.Device("a")
'''


@pytest.fixture
def script(tmp_path: Path) -> Callable[[str], str]:
    """Writes a plugin of one file, which goes on after ``SERIAL``; returns the command for it."""

    def write(text: str) -> str:
        path = tmp_path / "serial.py"
        path.write_text(SERIAL + textwrap.dedent(text))
        return f"{sys.executable} {path}"

    return write


@pytest.fixture
def plugin_dir() -> Iterator[Path]:
    """A directory without a kubelet, with a short path as sockets need it."""
    with TemporaryDirectory(prefix="dp") as path:
        yield Path(path)


@pytest.fixture
def gophers(tmp_path: Path) -> Path:
    directory = tmp_path / "gophers"
    directory.mkdir()
    for name in ("g10", "g2"):
        (directory / name).touch()
    return directory


Called = Callable[..., tuple[object, str, str]]
"""Gives the status and both texts of a command that ran in this process."""


@pytest.fixture
def called(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Called:
    """Calls ``main`` with plugins, arguments and variables."""
    monkeypatch.setattr(sys, "argv", ["/opt/serial"])

    def call(
        plugins: Sequence[Any],
        *argv: str,
        main: Callable[..., None] = dp.main,
        options: Mapping[str, Any] = MappingProxyType({}),
        **variables: str,
    ) -> tuple[object, str, str]:
        given: dict[str, Any] = {"settings": SerialSettings} if Serial in plugins else {}
        with monkeypatch.context() as patch:
            for name, value in variables.items():
                patch.setenv(name, value)
            with pytest.raises(SystemExit) as raised:
                main(*plugins, argv=[*argv], **given, **options)
        return raised.value.code, *capsys.readouterr()

    return call


@pytest.fixture
def gopher(called: Called, monkeypatch: pytest.MonkeyPatch) -> Called:
    """Calls the command of the example plugin with arguments and variables."""

    def main(argv: Sequence[str]) -> None:
        monkeypatch.setattr(sys, "argv", ["/opt/gopher-device-plugin", *argv])
        deviceplugin_gopher.main()

    return partial(called, [], main=main)


# What is printed.


def test_help_names_every_setting_with_its_text_and_default(gopher: Called) -> None:
    status, out, err = gopher("--help", COLUMNS="100")
    assert (0, "") == (status, err)
    words = " ".join(out.split())
    assert "usage: gopher-device-plugin [OPTION | SETTING ...] Offer" in words
    assert "Offer the files of a directory as devices" in words
    assert "--directory PATH Directory whose files are the devices" in words
    assert "It need not exist yet. (default: /etc/gophers)" in words
    assert "--log-level debug|info|warning|error Least severity that is logged." in words
    assert "--poll-interval DURATION Time between polls" in words
    assert [] == [f for f in fields(dp.Settings) if f"--{key(f)} " not in words]
    assert out.index("--variable TEXT") < out.index("--plugin-dir PATH")  # its own come first


@pytest.mark.parametrize(
    ("command", "name"),
    [
        (GOPHER, "gopher-device-plugin"),
        (f"{sys.executable} -m deviceplugin_gopher", "deviceplugin_gopher"),
    ],
)
def test_the_version_is_that_of_the_plugin(command: str, name: str) -> None:
    expected = f"{name} {version('deviceplugin-gopher')}\n"
    assert (0, expected, []) == run("--version", command=command)


def test_the_settings_can_be_printed_and_read_again(gopher: Called, tmp_path: Path) -> None:
    words = ["--print-config", "--poll-interval=90s", "--log-level", "debug"]
    status, out, err = gopher(*words, DP_RESOURCE="x.io/a")
    assert (0, "") == (status, err)
    settings = json.loads(out)
    names = ("poll-interval", "log-level", "directory", "resource")
    assert ["1m30s", "debug", "/etc/gophers", "x.io/a"] == [settings[name] for name in names]
    file = tmp_path / "config.json"
    file.write_text(out)
    assert (0, out, "") == gopher("--print-config", "--config", str(file))


def test_a_discovery_that_fails_is_no_success(gopher: Called, gophers: Path) -> None:
    problem = f"GopherPlugin: discovery failed: {gophers}/g2: Not a directory\n"
    found = gopher("--once", f"--directory={gophers}/g2")
    assert (1, "nothing to advertise\n", problem) == found


# Configuration errors.


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (
            ["--directry=/x"],
            "unknown argument '--directry=/x': did you mean --directory? (see --help)",
        ),
        (["--directry", "/x"], "unknown argument '--directry': did you mean --directory? (see"),
        (["/x"], "unknown argument '/x' (see --help)"),
        (["--directory"], "argument --directory: expected one argument (see --help)"),
        (["--output=xml"], "argument --output: invalid choice: 'xml' (choose from "),
        (["--directory=x"], "--directory: 'x' is not an absolute path"),
        (["--config=/none"], "/none: No such file or directory"),
        (["--resource=gopher"], "--resource: 'gopher' is not the name of a resource: it needs a"),
    ],
)
def test_a_wrong_argument_is_told_on_one_line(
    gopher: Called, arguments: list[str], line: str
) -> None:
    status, out, err = gopher(*arguments)
    assert (2, "", 1) == (status, out, len(err.splitlines()))
    assert err.startswith(f"gopher-device-plugin: {line}")


def test_a_setting_that_cannot_be_used_is_told_and_nothing_is_served(plugin_dir: Path) -> None:
    words = [f"--registry-dir=/{'d' * 80}", "--log-level=error"]
    status, out, err = run(f"--plugin-dir={plugin_dir}", *words)
    assert (2, "", 1) == (status, out, len(err))
    assert err[0].startswith(f"gopher-device-plugin: registry-dir '/{'d' * 80}' is too long")
    assert [] == list(plugin_dir.iterdir())


def test_variables_that_look_misspelt_or_have_no_effect_are_warned_of(
    gopher: Called, gophers: Path
) -> None:
    words = ["--once", "--log-format=json", f"--directory={gophers}", f"--resource={RESOURCE}"]
    variables = {"DP_DIRECTRY": "/x", "DP_RESOURCE": "x.io/a", "DP_DIRECTORY": str(gophers)}
    status, out, err = gopher(*words, **variables)
    assert (0, True) == (status, "g2" in out)
    assert [
        ("unknown environment variable ignored", "DP_DIRECTRY", "DP_DIRECTORY"),
        ("environment variable overridden", "DP_RESOURCE", "--resource"),
    ] == [
        (one["event"], one["variable"], one.get("did_you_mean") or one["overridden_by"])
        for one in map(json.loads, err.splitlines())
    ]


# Signals.


@pytest.mark.parametrize(
    ("reload", "end"), [("on-change", signal.SIGTERM), ("sighup", signal.SIGINT)]
)
def test_changed_settings_are_taken_invalid_ones_change_nothing_and_a_signal_ends_it(
    kubelet: Kubelet, gophers: Path, tmp_path: Path, reload: str, end: int
) -> None:
    (tmp_path / "others").mkdir()
    (tmp_path / "others/o1").touch()
    file = tmp_path / "config.yaml"
    file.write_text(f"directory: {gophers}\n")

    def change(text: str) -> None:
        (tmp_path / "new").write_text(text)
        (tmp_path / "new").replace(file)
        if "sighup" == reload:
            process.process.send_signal(signal.SIGHUP)

    words = [f"--config={file}", f"--reload={reload}"]
    with started(kubelet.simulated.plugin_dir, *words) as process:
        kubelet.simulated.wait_for(RESOURCE, {"g2", "g10"})
        change("directory: /x\ndirectry: /x\n")
        record = process.wait_for("invalid configuration ignored")
        problem = f"{file}:2: directry: unknown key: did you mean 'directory'?"
        assert ("error", problem) == (record["level"], record["error"])
        (gophers / "g3").touch()
        kubelet.simulated.wait_for(RESOURCE, {"g2", "g3", "g10"})
        change(f"directory: {tmp_path}/others\npoll-interval: 7s\n")
        record = process.wait_for("restart required to apply settings")
        assert ("warning", "poll-interval") == (record["level"], record["settings"])
        process.wait_for("configuration reloaded")
        kubelet.simulated.wait_for(RESOURCE, {"o1"}, {"g2", "g3", "g10"})
        assert 1 == kubelet.simulated.registration_count(RESOURCE)
        assert 0 == process.stop(end)
    assert [] == list(kubelet.simulated.plugin_dir.glob("example*"))


def test_a_default_file_that_comes_later_is_taken_and_what_it_names_is_watched_too(
    plugin_dir: Path, tmp_path: Path, script: Callable[[str], str]
) -> None:
    command = script("""
        @dataclass(frozen=True, kw_only=True)
        class Mine(dp.Settings):
            models: Path | None = field(default=None, metadata={"watch": True})

        class Numbered(Serial):
            def __init__(self, settings):
                int(settings.models.read_text() if settings.models else 0)

        dp.main(Numbered, settings=Mine, default_config=Path(__file__).with_name("default.json"))
        """)
    models = tmp_path / "models"
    models.write_text("1")
    with started(plugin_dir, command=command) as process:
        process.wait_for("started")
        (tmp_path / "default.json").write_text(json.dumps({"models": str(models)}))
        process.wait_for("configuration reloaded")
        models.write_text("many")
        record = process.wait_for("invalid configuration ignored")
        assert record["error"].startswith("ValueError: invalid literal for int()")
        models.write_text("2")
        process.wait_for("configuration reloaded")
        assert 0 == process.stop()


def test_a_signal_of_the_plugin_itself_stops_nothing(
    plugin_dir: Path, script: Callable[[str], str]
) -> None:
    command = script("""
        class Closer(Serial):
            def __init__(self):
                signal.signal(signal.SIGUSR1, self.look)

            def look(self, *_):  # logging may be what it interrupts
                os.write(2, b'{"event": "looking closer"}\\n')

        dp.main(Closer)
        """)
    with started(plugin_dir, command=command) as process:
        process.wait_for("started")
        process.process.send_signal(signal.SIGUSR1)
        process.wait_for("looking closer")
        assert 0 == process.stop()


# Plugins of other makes.


def test_a_plugin_may_be_a_script(script: Callable[[str], str]) -> None:
    command = script("""
        class Other(Serial):
            resource = "x.io/other"

        dp.main(Serial, lambda: Other())
        """)
    assert (0, f"serial {version('deviceplugin')}\n", []) == run("--version", command=command)
    _, out, _ = run("--help", command=command)
    assert "Advertise serial adapters." in out
    assert "usage text" not in out
    _, out, _ = run("--once", "--output=json", command=command)
    names = [resource["name"] for resource in json.loads(out)["resources"]]
    assert ["x.io/other", "x.io/serial"] == names


def test_a_process_that_breaks_while_it_runs_is_a_failure(
    plugin_dir: Path, script: Callable[[str], str]
) -> None:
    command = script("""
        import inotify_simple

        def fail(*_, **__):  # when its socket is there, which is the event that is read
            raise OSError(5, "the kernel is not well")

        inotify_simple.INotify.read = fail
        dp.main(Serial)
        """)
    with started(plugin_dir, command=command) as process:
        record = process.wait_for("fatal error, stopping")
        assert record["traceback"].endswith("OSError: [Errno 5] the kernel is not well")
        assert 1 == process.process.wait()


# Called from Python.


class Plain(dp.Plugin):
    def discover(self) -> list[dp.Device]:
        return []


@dataclass(frozen=True)
class Words:
    words: tuple[str, ...] = ()

    @classmethod
    def parse(cls, value: Any) -> "Words":
        return cls(tuple(value))

    def write(self) -> list[str]:
        return list(self.words)


@dataclass(frozen=True, kw_only=True)
class SerialSettings(dp.Settings):
    model: str
    """Which 100 % model."""
    root: str = field(default="/", metadata={"flag": "--base", "env": ("ROOT", "BASE")})
    """Where it is."""
    loud: bool = False
    word: Words = Words()
    names: tuple[str, ...] = ("a", "b")


class Serial(Plain):
    def __init__(self, settings: SerialSettings) -> None:
        self.resource = f"x.io/{settings.model}"


class Adapters(Plain):
    """Serial adapters, for whoever has some.

    Not for the usage text.
    """


def scan(words: Sequence[str]) -> int:
    """Look for adapters.

    At length.
    """
    if words == ["wrong"]:
        raise dp.ConfigError("no such port")
    sys.stdout.write(f"{words}\n")
    return 7


def test_further_commands_are_listed_and_run(called: Called) -> None:
    options = {"commands": {"scan": scan}}
    found = called([Adapters], "scan", "--help", "x", options=options)
    assert (7, "['--help', 'x']\n", "") == found
    found = called([Adapters], "scan", "wrong", options=options)
    assert (2, "", "serial scan: no such port\n") == found
    _, out, _ = called([Adapters], "--help", options=options)
    assert "Serial adapters, for whoever has some." in out
    assert "usage text" not in out
    assert re.search("scan +Look for adapters.\n", out)
    _, _, err = called([Adapters], "scna", options=options)
    assert "serial: unknown argument 'scna': did you mean scan? (see --help)\n" == err


def test_a_default_file_is_read_if_it_is_there_and_no_other_is_named(
    called: Called, tmp_path: Path
) -> None:
    default, other = tmp_path / "default.json", tmp_path / "other.json"
    options = {"default_config": default}

    def level(*argv: str, **variables: str) -> str:
        status, out, err = called([Plain], "--print-config", *argv, options=options, **variables)
        assert (0, "") == (status, err)
        found: str = json.loads(out)["log-level"]
        return found

    assert "info" == level()
    default.write_text('{"log-level": "debug"}')
    other.write_text('{"log-level": "error"}')
    assert "debug" == level()
    assert "error" == level(f"--config={other}")
    assert "error" == level(DP_CONFIG=str(other))


def test_a_setting_without_a_default_is_asked_for(called: Called) -> None:
    assert (2, "", "serial: --model (or DP_MODEL) is needed\n") == called([Serial])
    _, out, _ = called([Serial], "--help")
    assert "--model TEXT" in out
    assert "Which 100 % model.\n" in out
    _, out, _ = called([Serial], "--once", "--model=t1")
    assert "x.io/t1" in out


def test_a_setting_may_have_flags_and_variables_of_other_names(called: Called) -> None:
    def shown(*argv: str, **variables: str) -> list[object]:
        _, out, _ = called([Serial], "--print-config", "--model=a", *argv, **variables)
        settings = json.loads(out)
        return [settings[name] for name in ("root", "loud", "word")]

    assert ["/a", True, ["a,b", "c"]] == shown("--base=/a", "--loud", "--word=a,b", "--word=c")
    assert ["/b", True, []] == shown("--loud", "--root", "/b", BASE="/c")
    assert ["/d", False, []] == shown("--loud", "off", ROOT="/d", BASE="/c")
    _, out, _ = called([Serial], "--help")
    words = " ".join(out.split())
    assert "--base TEXT Where it is. (also ROOT, BASE in the environment; default: /) " in words
    assert "--loud [true|false] (default: false)" in words
    assert '(default: ["a", "b"])' in words


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ((), "main() needs at least one plugin"),
        ((Plain(),), "main() takes the class Plain, which it calls, not Plain()"),
        ((None,), "main() takes classes of plugins, not None"),
    ],
)
def test_main_says_what_it_takes_to_who_gives_something_else(
    called: Called, given: Any, problem: str
) -> None:
    status, _, err = called(given)
    assert (2, True) == (status, f"{problem}\n" in err)


def test_a_plugin_may_be_made_by_what_has_no_module(called: Called) -> None:
    class Maker:
        """Makes lamps."""

        __module__ = None  # type: ignore[assignment]

        def __call__(self) -> dp.Plugin:
            return Plain()

    status, out, _ = called([Maker()], "--help")
    assert (0, True) == (status, "Makes lamps." in out)
    assert 0 == called([Maker()], "--version")[0]


def test_without_any_version_it_is_unknown(
    called: Called, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(sys, "path", [str(tmp_path)])  # no package is installed there
    assert (0, "serial unknown\n", "") == called([Plain], "--version")
