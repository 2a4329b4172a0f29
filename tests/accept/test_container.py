"""What a program of ``accept`` has around it, and who uses devices meanwhile."""

import os
import stat
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from amd import machines as amd
from amd.tree import AmdTree
from deviceplugin.errors import ConfigError
from deviceplugin.kit import hosting
from deviceplugin.proto.v1beta1 import deviceplugin_pb2 as pb
from deviceplugin_testing.conformance._process import family
from deviceplugin_testing.simulator import RunOptions
from deviceplugin_testing.tools.accept import _container, _steps, _users
from deviceplugin_testing.tools.accept._node import place
from gpu.fake_library import compile_c, kept
from hardware.namespaces import unshared
from intelgpu import machines as intel
from intelgpu.tree import IntelTree
from patience import eventually

NOTHING = RunOptions({}, (), (), {}, ())
SHOW = """
import json, os
status = dict(line.split(":", 1) for line in open("/proc/self/status"))
def refused(act):
    try: act()
    except OSError as error: return error.strerror
print("noise"); print(json.dumps({
    "dev": sorted(os.listdir("/dev")), "top": sorted(os.listdir("/")), "pid": os.getpid(),
    "env": dict(os.environ), "groups": os.getgroups(), "rights": status["NoNewPrivs"].strip(),
    "mknod": refused(lambda: os.mknod("/dev/made", 0o20666, os.makedev(1, 3))),
    "write": refused(lambda: open("/given", "w")), "given": os.path.exists("/given"),
    "processes": sum(name.isdigit() for name in os.listdir("/proc")),
}))
"""
Run = Callable[..., dict[str, Any]]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    if os.geteuid():
        pytest.skip("needs root")
    unshared("--mount", "--pid", "--fork", "--net", "--ipc", "--uts")

    def run_program(text: str, given: RunOptions = NOTHING, timeout: float = 60) -> dict[str, Any]:
        program = tmp_path / "program.py"
        program.write_text(text)
        return _container.run(given, program, (), tmp_path, timeout)

    return run_program


def mounts(*pairs: tuple[Path | str, str]) -> RunOptions:
    given = [pb.Mount(host_path=str(a), container_path=b, read_only=True) for a, b in pairs]
    return replace(NOTHING, mounts=given)


def test_a_program_has_what_was_given_and_nothing_else(run: Run, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    node = pb.DeviceSpec(host_path="/dev/full", container_path="/dev/own/node")
    given = replace(
        mounts((tmp_path / "file", "/given")), devices=[node], gids=[7], envs={"A": "b"}
    )
    found = run(SHOW, given)
    usual = ["full", "null", "random", "shm", "tty", "urandom", "zero"]
    assert sorted([*usual, "own"]) == found["dev"]
    assert {"A": "b", "PATH": "/usr/bin:/bin"}.items() <= found["env"].items()
    assert [7] == found["groups"]
    assert (1, 1, "1") == (found["pid"], found["processes"], found["rights"])
    assert ("Operation not permitted", "Read-only file system") == (found["mknod"], found["write"])
    assert "home" not in found["top"] or str(Path(sys.executable).resolve()).startswith("/home")


def nodes(host: str, inside: str) -> RunOptions:
    return replace(NOTHING, devices=[pb.DeviceSpec(host_path=host, container_path=inside)])


ABSENT = "does not exist in what is mounted there"


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (mounts(("/dev/null", "/given/new/file")), ABSENT),
        (mounts(("/dev/null", "/given/out/new")), "No such file or directory: /given/out"),
        (nodes("/dev/full", "/given/node"), f"/given/node: {ABSENT}"),
    ],
)
def test_nothing_is_made_on_the_host(
    run: Run, tmp_path: Path, given: RunOptions, expected: str
) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "out").symlink_to(tmp_path)
    shared = pb.Mount(host_path=str(folder), container_path="/given")
    assert expected in run(SHOW, replace(given, mounts=[shared, *given.mounts]))["error"]
    assert ["out"] == [path.name for path in folder.iterdir()]
    assert not (tmp_path / "new").exists()


def hook(name: str, path: str) -> RunOptions:
    return replace(NOTHING, hooks=[{"hookName": name, "path": path}])


@pytest.mark.parametrize(
    ("given", "program", "expected"),
    [
        (mounts(("/nowhere", "/given")), SHOW, "No such file or directory: /nowhere"),
        (nodes("/etc/passwd", "/x"), SHOW, "/etc/passwd: is not a character device on the host"),
        (hook("createContainer", "/bin/false"), SHOW, "hook /bin/false: status 1: no message"),
        (hook("poststop", "/bin/true"), SHOW, "/bin/true: a hook poststop cannot be run here"),
        (NOTHING, "import ctypes; ctypes.string_at(0)", "ended with status -11: no message"),
        (NOTHING, "raise SystemExit('own words')", "ended with status 1: own words"),
        (NOTHING, "print('[]')", "ended with status 0: no message"),
        (NOTHING, "import time; time.sleep(1000)", "did not end within 1 s"),
    ],
)
def test_why_there_is_no_result_is_named(
    run: Run, given: RunOptions, program: str, expected: str
) -> None:
    patience = 1 if "sleep" in program else 60
    assert {"error": expected} == run(program, given, patience)


ENDLESS = """
import sys
from pathlib import Path
from deviceplugin_testing.tools.accept import _container
from deviceplugin_testing.simulator import RunOptions
folder = Path(sys.argv[1])
(folder / "program.py").write_text("import time; time.sleep(1000)")
_container.run(RunOptions({}, (), (), {}, ()), folder / "program.py", (), folder, 1000)
"""


@pytest.mark.slow
def test_a_program_ends_with_the_accept_that_is_killed(run: Run, tmp_path: Path) -> None:
    assert "pid" in run(SHOW)  # it is possible here
    words = [sys.executable, "-c", ENDLESS, str(tmp_path)]
    with subprocess.Popen(words) as process:
        eventually(lambda: programs(process.pid))
        inside = programs(process.pid)
        process.kill()
    eventually(lambda: not [one for one in inside if _container.PROBE in command(one)])


def programs(pid: int) -> list[int]:
    return [one for one in family(pid) if _container.PROBE in command(one)]


def command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return ""


IOCTL = """
#include <string.h>
int ioctl(int fd, unsigned long request, void *given) {
    struct { int major, minor, patch; unsigned long length; char *name; } *version = given;
    if (request != 0xC0406400) return -1;
    version->major = 3, version->minor = 61, version->patch = 0;
    strcpy(version->name, "amdgpu");
    return fd < 0;
}
"""


def test_the_driver_of_a_render_node_is_asked(pytestconfig: pytest.Config) -> None:
    made = kept(pytestconfig, "fake-drm") / "libdrm-fake.so"
    library = compile_c(made, ["-shared", "-fPIC", "-x", "c", "-"], IOCTL)
    words = f"import runpy; print(runpy.run_path({str(_steps.RENDER)!r})['version']('/dev/full'))"
    done = subprocess.run(
        [sys.executable, "-c", words],
        env={**os.environ, "LD_PRELOAD": str(library)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "amdgpu 3.61.0\n" == done.stdout


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ({"/dev/dri/renderD128": "amdgpu 3.61.0"}, ["ok"]),
        ({"/dev/dri/renderD128": "i915 1.6.0"}, ["failure"]),
        ({"/dev/dri/renderD128": "Inappropriate ioctl for device (25)"}, ["failure"]),
        ({}, ["failure"]),
    ],
)
def test_a_render_node_must_be_of_the_plugins_driver(
    said: dict[str, str], expected: list[str]
) -> None:
    found = _steps.render_nodes(said, frozenset({"amdgpu"}))
    assert expected == [one.verdict.value for one in found]


def test_users_are_found_by_the_number_of_a_node_whatever_its_name(tmp_path: Path) -> None:
    if os.geteuid():
        pytest.skip("needs root")
    for name in ("nvidia0", "other"):
        os.mknod(tmp_path / name, stat.S_IFCHR | 0o666, os.makedev(1, 8))
    program = f"exec 7<{tmp_path}/other; echo; exec sleep 1000"
    with subprocess.Popen(["sh", "-c", program], stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            process.stdout.readline()
            eventually(lambda: "sleep" in Path(f"/proc/{process.pid}/comm").read_text())
            node = str(tmp_path / "nvidia0")
            assert process.pid not in [one.pid for one in _users.users([node])]  # its own
            words = ["-c", f"from {_users.__name__} import *; print(*map(str, users([{node!r}])))"]
            done = subprocess.run([sys.executable, *words], capture_output=True, check=True)
            expected = f"sleep (PID {process.pid})"
            assert expected in done.stdout.decode()
        finally:
            process.kill()


def test_one_process_has_the_place_and_what_a_killed_one_left_is_gone(tmp_path: Path) -> None:
    path = tmp_path / "place"
    (path / "left/over").mkdir(parents=True)
    with place(path) as folder:
        assert [] == [*folder.iterdir()]
        with pytest.raises(ConfigError, match="another accept has"), place(path):
            pass
        (folder / "file").touch()
    assert [] == [*path.iterdir()]


def test_without_the_package_that_has_it_the_command_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(metadata, "entry_points", lambda **_: ())
    with pytest.raises(ConfigError, match=r"needs deviceplugin-testing: .*\./common/testing"):
        hosting.acceptance("lamp")([])


def as_render_nodes(folder: Path) -> None:
    """Have device nodes in place of a tree's files."""
    for path in [*folder.glob("dri/renderD*"), *folder.glob("dri/card*"), *folder.glob("kfd")]:
        path.unlink()
        os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, 7))


@pytest.mark.slow
@pytest.mark.parametrize("vendor", ["amd", "intelgpu"])
def test_gpus_without_a_runtime_have_their_render_nodes_opened(tmp_path: Path, vendor: str) -> None:
    if os.geteuid():
        pytest.skip("needs root")
    tree = AmdTree(tmp_path, amd.SMALL) if vendor == "amd" else IntelTree(tmp_path, intel.SMALL)
    as_render_nodes(tree.dev)
    command = [sys.executable, "-m", f"deviceplugin_{vendor}", "accept"]
    report = tmp_path / "report.md"
    flags = [f"--sysfs-dir={tree.sys}", f"--dev-dir={tree.dev}"]
    inside = ["sh", "-c", 'mount -t tmpfs none /run; exec "$@"', "sh"]
    words = [*unshared("--mount"), *inside, *command, f"--report={report}", "--", *flags]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert 1 == done.returncode, done.stderr
    assert "Inappropriate ioctl for device (25)" in report.read_text(), done.stderr
