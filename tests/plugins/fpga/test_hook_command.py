"""The hook as it is on a host: one file, the host's Python, and what the runtime gives it."""

import ast
import io
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from deviceplugin_fpga import command_line, hook
from fpga.bitstreams import gbs
from fpga.cards import FakeCards, bundle
from fpga.trees import AFU, INTERFACE, OTHER_AFU, FpgaTree
from full_disk import full_disk
from patience import PATIENCE

BIN = Path(sys.executable).parent
REQUEST = {"FPGA_REGION_1": INTERFACE, "FPGA_AFU_1": OTHER_AFU}
Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    path = tmp_path / "opt/intel/fpga-sw/intel-fpga-crihook"
    assert 0 == command_line.install_hook([str(path)])
    return path


@pytest.fixture
def run(tree: FpgaTree, installed: Path, tmp_path: Path) -> Run:
    def run_hook(
        ports: Sequence[Path], *flags: str, **environment: str
    ) -> subprocess.CompletedProcess[str]:
        options = [
            f"--sysfs={tree.sys}",
            f"--dev={tree.dev}",
            f"--bitstreams={tmp_path}/none",
            f"--lock={tmp_path}/lock",
        ]
        # By the interpreter of the tests: the host's need not be where this runs.
        return subprocess.run(
            [sys.executable, "-I", "-S", installed, *options, *flags],
            input=bundle(tmp_path / "bundle", ports, **environment).decode(),
            capture_output=True,
            text=True,
            env={},
            check=False,
            timeout=PATIENCE,
        )

    return run_hook


def test_the_hook_is_one_file_that_can_be_executed(installed: Path) -> None:
    def status() -> tuple[int, int, bytes]:
        found = installed.stat()
        return found.st_mode, found.st_ino, installed.read_bytes()

    before = status()
    assert (0o100755, b"#!/bin/sh") == (before[0], before[2].splitlines()[0])
    subprocess.run([BIN / "fpga-device-plugin", "install-hook", installed], check=True)
    assert before == status()
    assert [installed] == list(installed.parent.iterdir())


def test_the_hook_runs_without_the_framework(run: Run, tree: FpgaTree) -> None:
    ports = tree.simple(AFU, OTHER_AFU)
    done = run(ports, **REQUEST, FPGA_REGION_2=INTERFACE, FPGA_AFU_2=AFU)
    assert (0, "", "") == (done.returncode, done.stdout, done.stderr)


def test_a_refusal_is_exit_status_1_with_one_line(run: Run, tree: FpgaTree, tmp_path: Path) -> None:
    done = run(tree.simple(AFU), **REQUEST)
    expected = f"fpga-hook: {tmp_path}/none/{INTERFACE}: no bitstream {OTHER_AFU}.gbs or .aocx\n"
    assert (1, "", expected) == (done.returncode, done.stdout, done.stderr)
    name = "\x1b[31m\n" + "x" * 200
    flags = [f"--bitstreams={tmp_path}/{'/'.join([name] * 30)}"]
    done = run(tree.simple(AFU, number=1, address="0000:5e:00.0"), *flags, **REQUEST)
    line = done.stderr.rstrip("\n")
    assert (1, True, True) == (done.returncode, line.isprintable(), len(line) < 1000)


@pytest.mark.parametrize("closed", ["<&-", "<&- >&- 2>&-"])
def test_a_standard_input_that_is_closed_is_refused(installed: Path, closed: str) -> None:
    done = subprocess.run(
        ["/bin/sh", "-c", f'exec "$@" {closed}', "sh", sys.executable, "-I", "-S", installed],
        capture_output=True,
        text=True,
        env={},
        check=False,
        timeout=PATIENCE,
    )
    text = "fpga-hook: standard input is closed: the state of the container is expected there\n"
    assert (1, "", "" if "2>" in closed else text) == (done.returncode, done.stdout, done.stderr)


def test_the_host_itself_can_run_it(installed: Path) -> None:
    if not Path("/usr/bin/python3").exists():
        pytest.skip("no Python where hosts have it")
    done = subprocess.run([installed], input=b"{}", capture_output=True, env={}, check=False)
    assert (1, b"fpga-hook: the state on standard input: no bundle\n") == (
        done.returncode,
        done.stderr,
    )


def test_the_hook_is_written_for_python_3_9(installed: Path) -> None:
    with zipfile.ZipFile(installed) as archive:
        sources = {name: archive.read(name).decode() for name in archive.namelist()}
    assert "deviceplugin_fpga/hook/__init__.py" in sources
    for name, source in sources.items():
        tree = ast.parse(source, name, feature_version=(3, 9))
        imported = {
            word.partition(".")[0]
            for node in ast.walk(tree)
            if isinstance(node, ast.Import | ast.ImportFrom)
            for word in (
                [node.module or ""]
                if isinstance(node, ast.ImportFrom)
                else [alias.name for alias in node.names]
            )
        }
        assert imported <= {"deviceplugin", "deviceplugin_fpga", *sys.stdlib_module_names}
        # Annotations may then be of any age: they are not evaluated.
        if any(isinstance(node, ast.FunctionDef | ast.AnnAssign) for node in ast.walk(tree)):
            has_future = "from __future__ import annotations" in source
            assert has_future or name.endswith("hook/__init__.py"), name


SHELLS = [["dash"], ["bash", "--posix"], ["busybox", "sh"]]


@pytest.fixture(params=SHELLS, ids=lambda words: words[0])
def shell(request: pytest.FixtureRequest) -> list[str]:
    """Return the words that call one of the shells that hosts have as /bin/sh."""
    words: list[str] = request.param
    path = shutil.which(words[0])
    if path is None:
        pytest.skip(f"no {words[0]}")
    return [path, *words[1:]]


@pytest.fixture
def host(installed: Path, tmp_path: Path) -> Callable[..., Path]:
    """Return what puts programs into /usr/bin of a host, and returns the hook for it."""

    def has(**programs: str) -> Path:
        folder = tmp_path / "usr/bin"
        folder.mkdir(parents=True)
        for name, code in programs.items():
            (folder / name.replace("_", ".")).write_text(f"#!/bin/sh\n{code}\n")
            (folder / name.replace("_", ".")).chmod(0o755)
        content = installed.read_bytes()
        for place in (b"/usr/bin/", b"/usr/local/bin/"):
            content = content.replace(place, f"{folder}/".encode())
        installed.write_bytes(content)
        return installed

    return has


def called(shell: Sequence[str], hook: Path) -> tuple[int, str]:
    done = subprocess.run(
        [*shell, hook],
        input="{}",
        capture_output=True,
        text=True,
        check=False,
        env={},
        timeout=PATIENCE,
    )
    assert "" == done.stdout
    return done.returncode, done.stderr


OLD = "exit 1  # as it says of its version"
MINIMAL = 'case "$3" in *json*) exit 1;; esac; exit 7'
NEW = f'exec {sys.executable} "$@"'


@pytest.mark.parametrize(
    "programs",
    [
        {"python3": NEW},
        {"python3": OLD, "python3_14": NEW, "python3_9": OLD},
        {"python3_12": NEW},
        {"python3": MINIMAL, "python3_14": NEW},
    ],
)
def test_the_first_python_that_is_new_enough_runs_the_hook(
    shell: list[str], host: Callable[..., Path], programs: dict[str, str]
) -> None:
    expected = (1, "fpga-hook: the state on standard input: no bundle\n")
    assert expected == called(shell, host(**programs))


@pytest.mark.parametrize("programs", [{}, {"python3": "exit 126"}])
def test_a_host_without_a_python_is_told_what_is_needed(
    shell: list[str], host: Callable[..., Path], programs: dict[str, str]
) -> None:
    status, text = called(shell, host(**programs))
    assert (1, 1) == (status, text.count("\n"))
    assert text.startswith("fpga-hook: needs Python 3.9 or newer with its library on the host: ")


def test_a_python_is_asked_for_its_version(host: Callable[..., Path], tmp_path: Path) -> None:
    called(["sh"], host(python3=f'echo "$3" > {tmp_path}/asked; exit 1'))
    question = (tmp_path / "asked").read_text()
    for version, status in (((3, 8, 9), 1), ((3, 9, 0), 0), ((3, 14, 0), 0)):
        code = question.replace("sys.version_info", str(version))
        assert status == subprocess.run([sys.executable, "-c", code], check=False).returncode


@pytest.mark.parametrize("arguments", [[], ["relative"], ["/a", "/b"], ["--to=/a"], ["/"]])
def test_installing_it_nowhere_is_refused(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert 2 == command_line.install_hook(arguments)
    assert "usage: fpga-device-plugin install-hook /PATH/OF/THE/HOOK\n" == capsys.readouterr().err


def test_a_place_that_cannot_be_written_to_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    assert 1 == command_line.install_hook([f"{tmp_path}/file/hook"])
    assert f"fpga-device-plugin: {tmp_path}/file: File exists\n" == capsys.readouterr().err


def test_a_disk_that_is_full_is_told_and_leaves_nothing(tmp_path: Path) -> None:
    with full_disk(), pytest.raises(OSError, match=f"File too large: '{tmp_path}/hook'"):
        command_line.install(tmp_path / "hook")
    assert [] == list(tmp_path.iterdir())


def test_help_says_what_the_host_needs_and_the_defaults(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert 0 == command_line.install_hook(["--help"])
    assert "Python 3.9 or newer in /usr/bin" in capsys.readouterr().out
    monkeypatch.setenv("COLUMNS", "200")
    for default in ("/srv/intel.com/fpga", "/sys", "/dev", "/run/fpga-hook.lock", "60"):
        assert f"(default: {default})" in hook._parser().format_help()


def test_the_command_says_what_it_programmed(
    tree: FpgaTree,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    ports = tree.simple(AFU)
    folder = tmp_path / "bitstreams" / INTERFACE
    folder.mkdir(parents=True)
    (folder / f"{OTHER_AFU}.gbs").write_bytes(gbs(afu=OTHER_AFU))
    state = tmp_path / "state"
    state.write_bytes(bundle(tmp_path / "bundle", ports, **REQUEST))
    monkeypatch.setattr(hook, "Kernel", lambda _: FakeCards(tree))
    flags = [f"--sysfs={tree.sys}", f"--lock={tmp_path}/lock", f"--bitstreams={folder.parent}"]
    monkeypatch.setattr(sys, "argv", ["fpga-hook", *flags])
    with state.open() as stream:
        monkeypatch.setattr(sys, "stdin", stream)
        with pytest.raises(SystemExit) as end:
            hook.main()
    assert (0, "fpga-hook: programmed dfl-port.0\n") == (end.value.code, capsys.readouterr().err)
    (ports[0] / "afu_id").write_text(AFU)
    nobody = io.TextIOWrapper(io.FileIO("/dev/full", "w"), write_through=True)
    with state.open() as stream, nobody:
        monkeypatch.setattr(sys, "stdin", stream)
        monkeypatch.setattr(sys, "stderr", nobody)
        with pytest.raises(SystemExit) as end:
            hook.main()
    assert (0, OTHER_AFU) == (end.value.code, (ports[0] / "afu_id").read_text().strip())
