"""``gpu-device-plugin accept``, on a machine with the fake driver and a /dev of its own."""

import fcntl
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from deviceplugin.checks import Found, Verdict
from deviceplugin_gpu.accept.results import judge
from deviceplugin_gpu.accept.runtime import cdi_devices
from deviceplugin_gpu.accept.smi import compare
from deviceplugin_testing.conformance._process import family
from deviceplugin_testing.tools.accept import _cli
from gpu.driver_root import VERSION, DriverRoot
from gpu.fake_nvml import FakeNvml, Fleet
from gpu.rig import uuid
from hardware.namespaces import unshared
from patience import PATIENCE, eventually

PREPARE = """set -e
mount -t tmpfs none /run; mount -t tmpfs none "$WORK/dev"
cp -a /dev/null /dev/zero /dev/full /dev/random /dev/urandom /dev/tty "$WORK/dev"
mknod "$WORK/dev/nvidiactl" c 1 3; mknod "$WORK/dev/nvidia-uvm" c 1 5
mknod "$WORK/dev/nvidia0" c 1 7  # of /dev/full, which hardly anybody opens
mount --bind "$WORK/dev" /dev
set +e
"""
RUN = '"$@" & wait $!; status=$?; '
LEFT = """rmdir /run/deviceplugin-accept
echo "left: $(ls -A -I mount /run)$(grep plugin-accept /proc/mounts)"; exit $status"""
ACCEPT = [sys.executable, "-m", "deviceplugin_gpu", "accept"]
HOLD, UVM, HELD = "exec 7<>/dev/nvidia0", "8<>/dev/nvidia-uvm", "echo held; exec sleep 1000"
CTR_PATH = "driver-root-ctr-path"


def script(path: Path, text: str) -> None:
    """Have a program of a shell, or of the interpreter that its first line names."""
    path.write_text(text if text.startswith("#!") else f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


class Machine:
    """Root's machine with one GPU of the fake driver, in a mount namespace of its own."""

    def __init__(self, path: Path, library: Path, compiled: Path) -> None:
        self.path, self.report = path, path / "report.txt"
        self.driver = DriverRoot(path / "driver", compiled)
        self.driver.install()
        (self.driver.path / "usr/lib64" / library.name).write_bytes(library.read_bytes())
        self.fake = FakeNvml(path / "nvml", Fleet(Fleet.of(1).gpus, driver={"version": VERSION}))
        self.flags = [f"--{one}={self.driver.path}" for one in ("driver-root", CTR_PATH)]
        (path / "dev").mkdir()
        (path / "bin").mkdir()
        self.environment = self.fake.environment(library) | {
            "WORK": str(path),
            "PATH": f"{path}/bin:{os.environ['PATH']}",
        }

    def program(self, name: str, text: str) -> None:
        """Have a program of this name on the machine."""
        script(self.path / "bin" / name, text)

    def tell_xids(self) -> None:
        """Have the fake NVML report the faults of the fake CUDA."""
        fifo = self.driver.path / "run/nvidia-persistenced/socket"
        fifo.parent.mkdir(parents=True)
        os.mkfifo(fifo)

        def relay() -> None:
            with fifo.open() as told:
                for line in told:
                    self.fake.xid(0, int(line))

        threading.Thread(target=relay, daemon=True).start()

    def start(
        self, *options: str, before: str = "", wrap: Sequence[str] = (), script: str = RUN + LEFT
    ) -> subprocess.Popen[str]:
        """Start accept; ``before`` is done on the machine, ``wrap`` runs accept."""
        command = [*wrap, *ACCEPT, f"--report={self.report}", *options, "--", *self.flags]
        words = [*unshared("--mount"), "sh", "-c", PREPARE + before + script, "sh", *command]
        return subprocess.Popen(
            words,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def run(self, *options: str, **how: Any) -> tuple[int, str]:
        """Run accept, and return its exit status and what it says; it must leave nothing."""
        process = self.start(*options, **how)
        try:
            output, errors = process.communicate(timeout=6 * PATIENCE)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        assert "left: \n" in output, output + errors
        return process.returncode, plain(output + errors)

    def page(self) -> str:
        """Return the report."""
        return plain(self.report.read_text())


def plain(text: str) -> str:
    return re.sub(" +", " ", text)


@pytest.fixture
def machine(root: Path, nvml_library: Path, compiled: Path) -> Iterator[Machine]:
    if os.geteuid():
        pytest.skip("needs root")
    unshared("--mount")
    # One at a time: the program of another test would be a user of the GPU.
    with Path(tempfile.gettempdir(), "deviceplugin-tests-accept").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield Machine(root, nvml_library, compiled)


@pytest.mark.slow
def test_each_strategy_runs_cuda_and_a_provoked_xid_reaches_metrics_and_log(
    machine: Machine,
) -> None:
    machine.tell_xids()
    toolkit(machine)
    status, said = machine.run("--provoke")
    rows = [
        f"ok container {uuid(0)} by {strategy}: CUDA: 13.0 on NVIDIA A100-SXM4-40GB, 39Gi"
        for strategy in ("envvar", "volume-mounts", "cdi-annotations", "cdi-cri")
    ]
    rows += ["XID in the metrics: XID 31", "XID in the log", "the GPU stays healthy"]
    rows += ["next container: the kernel", "--provoke"]
    page = machine.page()
    assert (0, []) == (status, [row for row in rows if row not in page]), said


def toolkit(machine: Machine) -> None:
    """Have NVIDIA's toolkit, whose specification has a hook: the linker's cache is its work."""
    files = machine.driver.path / "usr/lib64"
    mounts = [
        {"hostPath": str(files / source), "containerPath": f"/opt/driver/{name}"}
        for name, source in {
            "libcuda.so.1": f"libcuda.so.{VERSION}",
            f"libnvidia-gpucomp.so.{VERSION}": f"libnvidia-gpucomp.so.{VERSION}",
            "libnvidia-ptxjitcompiler.so.1": f"libnvidia-ptxjitcompiler.so.{VERSION}",
        }.items()
    ]
    socket = "run/nvidia-persistenced/socket"
    mounts.append({"hostPath": str(machine.driver.path / socket), "containerPath": f"/{socket}"})
    nodes = [{"path": f"/dev/{name}"} for name in ("nvidiactl", "nvidia-uvm", "nvidia0")]
    hook = machine.path / "bin/hook"
    document = {
        "cdiVersion": "0.5.0",
        "kind": "nvidia.com/gpu",
        "devices": [{"name": uuid(0), "containerEdits": {"deviceNodes": nodes}}],
        "containerEdits": {
            "mounts": mounts,
            "hooks": [{"hookName": "createContainer", "path": str(hook), "args": ["hook", "it"]}],
        },
    }
    (machine.path / "toolkit.json").write_text(json.dumps(document))
    copy = f'for word; do case $word in --output=*) cp {machine.path}/toolkit.json "${{word#*=}}"'
    machine.program("nvidia-ctk", f"{copy};; esac; done")
    program = """#!{python}
import json, subprocess, sys
state = json.load(sys.stdin)
assert ["it"] == sys.argv[1:], sys.argv
root = json.load(open(state["bundle"] + "/config.json"))["root"]["path"]
open(root + "/etc/ld.so.conf", "w").write("/opt/driver\\n")
subprocess.run(["/sbin/ldconfig", "-r", root], check=True)
"""
    machine.program("hook", program.format(python=sys.executable))


@pytest.mark.slow
def test_without_flags_the_driver_is_that_of_the_machine(machine: Machine) -> None:
    machine.flags = []
    place = "/usr/local/nvidia/lib64"
    before = (
        f"mount -t tmpfs none /usr/local; mkdir -p {place}; cp $WORK/driver/usr/lib64/* {place}\n"
    )
    status, said = machine.run("--strategy=cdi-cri", before=before)
    assert (0, True) == (status, "by cdi-cri: CUDA: 13.0" in said), said


DAEMON = """#!{python}
import ctypes, signal
nodes = [open(one, "r+b", 0) for one in ("/dev/nvidia0", "/dev/nvidia-uvm")]
ctypes.CDLL(None).prctl(15, b"nvidia-persistenced")
print("held", flush=True); signal.pause()
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("holder", "name", "refused"),
    [
        (f"sh -c '{HOLD} {UVM}; {HELD}'", "sleep", ["tried: in use"]),
        (f"unshare -Upf --map-user=65534 sh -c '{HOLD} {UVM}; {HELD}'", "sleep", ["tried: in use"]),
        (f"sh -c '{HOLD}; {HELD}'", "sleep", ["provoked: opened"]),  # it only watches
        ("daemon", "nvidia-persiste", []),
    ],
)
def test_a_gpu_that_somebody_uses_is_left_alone_and_they_are_named(
    machine: Machine, holder: str, name: str, refused: list[str]
) -> None:
    if not refused:
        machine.tell_xids()
    machine.program("daemon", DAEMON.format(python=sys.executable))
    wait = 'while [ ! -s "$WORK/held" ] && kill -0 $holder; do sleep 0.05; done\n'
    before = f"{holder} > $WORK/held & holder=$!\n{wait}"
    script = f"{RUN} kill -9 $holder $(pgrep -P $holder) 2>/dev/null; {LEFT}"
    status, said = machine.run("--provoke", "--strategy=cdi-cri", before=before, script=script)
    page = machine.page()
    assert 0 == status, said
    assert re.search(rf" {name} \(PID \d+\): has open /dev/nvidia0", page), page
    assert refused == re.findall(r"not (tried: in use|provoked: opened) by ", page)
    assert bool(refused) != ("faulting kernel" in page)
    assert bool(refused) != ("spared for its name, which is no proof: see /proc/" in page)


NO_ADMIN, NO_PTRACE = (
    ["setpriv", f"--bounding-set=-{right}", f"--inh-caps=-{right}"]
    for right in ("sys_admin", "sys_ptrace")
)
HIDDEN = "unknown container programs: not all processes are visible: run it as root on the host"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("wrap", "expected"),
    [
        (["unshare", "--pid", "--fork", "--mount-proc"], HIDDEN),
        (NO_PTRACE, HIDDEN),
        (NO_ADMIN, "unshare: unshare failed: Operation not permitted"),
    ],
)
def test_where_others_or_namespaces_are_out_of_reach_nothing_is_started_and_it_says_so(
    machine: Machine, wrap: list[str], expected: str
) -> None:
    status, said = machine.run("--provoke", "--strategy=cdi-cri", wrap=wrap)
    page = machine.page()
    assert (0, 1) == (status, page.count(expected)), said
    assert "cdi-cri: 1 of 1 devices allocated" in page
    assert "unknown provocation --provoke: no program ran on a device before" in page
    assert "Traceback" not in said


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 130), (signal.SIGKILL, 137)]
)
def test_an_accept_that_is_ended_in_between_leaves_nothing_and_the_next_one_runs(
    machine: Machine, number: signal.Signals, status: int
) -> None:
    first = '"$@" & echo $!; wait $!; echo "ended: $?"; '
    again = f'"$@"; status=$?; echo "again: $status"; {LEFT}'
    # A shell has what it starts in the background ignore Ctrl-C.
    wrap = ["env", "--default-signal=INT"]
    with machine.start("--strategy=cdi-cri", wrap=wrap, script=first + again) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        pid = int(process.stdout.readline())
        for line in process.stderr:
            if "discovery" in line:
                break
        drained = threading.Thread(target=process.stderr.read)
        drained.start()
        children = [*family(pid)]
        os.kill(pid, number)
        assert f"ended: {status}\n" == process.stdout.readline()
        eventually(lambda: not [one for one in children if Path(f"/proc/{one}").exists()])
        assert "again: 0\nleft: \n" == process.stdout.read()[-16:]
        drained.join()


@pytest.mark.slow
def test_two_at_once_do_not_mix(machine: Machine) -> None:
    first = '"$@" 2>"$WORK/first" & first=$!; '
    begun = 'while ! grep -q discovery "$WORK/first" && kill -0 $first; do sleep 0.05; done; '
    script = f'{first}{begun}"$@" && exit 9; echo "second: $?"; wait; status=$?; {LEFT}'
    status, said = machine.run("--strategy=cdi-cri", script=script)
    assert (0, True) == (status, "second: 2\n" in said), said
    assert "another accept has /run/deviceplugin-accept: wait until it has ended" in said


@pytest.mark.slow
def test_a_report_is_written_in_time_whatever_hangs(machine: Machine) -> None:
    machine.program("nvidia-smi", "exec sleep 1000")
    words = f"import sys; from {_cli.__name__} import *; import {_cli.__name__} as cli"
    limited = f"{words}; cli._LIMIT = 1; sys.exit(main(['gpu', *sys.argv[5:]]))"
    wrap = [sys.executable, "-c", limited]
    script = f"{RUN} rm -r /run/deviceplugin-accept; {LEFT}"
    status, said = machine.run("--strategy=cdi-cri", wrap=wrap, script=script)
    assert 0 == status, said
    assert "the rest: not tried: 1 s are over" in machine.page()


@pytest.mark.slow
def test_a_driver_that_lacks_a_part_fails_and_a_full_disk_does_not_lose_the_report(
    machine: Machine,
) -> None:
    (machine.driver.path / f"usr/lib64/libnvidia-ptxjitcompiler.so.{VERSION}").unlink()
    full = machine.path / "full"
    full.mkdir()
    before = f"mount -t tmpfs -o size=4k none {full}; head -c 4096 /dev/zero >{full}/all\n"
    status, said = machine.run("--strategy=cdi-cri", f"--report={full}/report", before=before)
    assert 1 == status
    failed = f"failure container {uuid(0)} by cdi-cri: program: cuDriverGetVersion: CUDA_ERROR"
    assert 2 == said.count(failed), said
    assert f"{full}/report: No space left on device: see it above" in said


@pytest.mark.slow
def test_without_a_gpu_it_fails_and_says_why(machine: Machine) -> None:
    machine.fake.drop_driver()
    status, said = machine.run("--strategy=cdi-cri")
    assert (1, True) == (status, "plugin: NVML cannot be initialized" in said), said


GPU = Found("nvidia.com/gpu", f"{uuid(0)}::1", attributes={"memory": "40Gi", "pci": "0000:01:00.0"})
CUDA = {"uuid": uuid(0)[4:], "pci": "0000:01:00.0", "memory": 39 << 30, "name": "A100"}


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        ([CUDA], "13.0 on A100, 39Gi: the kernel is right"),
        ([], "has 0 devices, not 1"),
        ([CUDA, CUDA], "has 2 devices, not 1"),
        ([{**CUDA, "uuid": "x"}], f"uuid x, not {uuid(0)[4:]}"),
        ([{**CUDA, "pci": "0000:02:00.0"}], "pci 0000:02:00.0, not 0000:01:00.0"),
        ([{**CUDA, "memory": 5 << 30}], "memory 5Gi, not 40Gi"),
        ([{**CUDA, "memory": 80 << 30}], "memory 80Gi, not 40Gi"),
    ],
)
def test_what_cuda_has_in_a_container_is_what_was_allocated(
    result: list[dict[str, Any]], expected: str
) -> None:
    (found,) = judge(GPU, {"devices": result, "cuda": "13.0"})
    assert expected == found.found


def test_ids_that_are_not_cudas_are_not_compared() -> None:
    (found,) = judge(Found("nvidia.com/gpu", "all"), {"devices": [CUDA, CUDA], "cuda": "12.8"})
    assert Verdict.OK == found.verdict


ROW = "0, {uuid}, 00000000:01:00.0, {memory}, 580.95.05, NVIDIA A100, big\n"
TOPOLOGY = (
    "\t\x1b[4mGPU0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\x1b[0m\nGPU0\t X \t0-31\t{}\t\tN/A"
)
OURS = {"index": 0, "model": "NVIDIA A100, big", "memory": "39.56Gi", "pci": "0000:01:00.0"}
SMI = [
    (ROW.format(uuid=uuid(0), memory=40510), "1", "driver 580.95.05; same index, PCI, "),
    (ROW.format(uuid=uuid(0), memory=40510), "0", "NUMA [1] is 0"),
    (ROW.format(uuid=uuid(1), memory=40510), "0", "same index, PCI, "),
    (ROW.format(uuid=uuid(1), memory=40510), "1", "NUMA [] is 1"),
    (ROW.format(uuid=uuid(0), memory=40510), None, "memory; it tells no NUMA node"),
    (ROW.format(uuid=uuid(0), memory=80000), "N/A", "memory 39.56Gi is 80000 MiB"),
    (ROW.format(uuid=uuid(0), memory=40510).replace("01:00", "02:00"), "1", "pci 0000:01:00.0 is "),
    (ROW.format(uuid="GPU-other", memory=1), "1", "GPU 0 (NVIDIA A100, big) is not offered"),
    ("Failed to initialize NVML: Driver/library version mismatch", "1", "names no GPU: Failed to"),
]


@pytest.mark.parametrize(("rows", "numa", "expected"), SMI)
def test_what_nvidia_smi_says_is_compared(
    tmp_path: Path, rows: str, numa: str | None, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "rows").write_text(rows)
    if numa:
        (tmp_path / "topo").write_text(TOPOLOGY.format(numa))
    program = tmp_path / "root/usr/bin/nvidia-smi"
    program.parent.mkdir(parents=True)
    script(program, f"[ $1 = topo ] && exec cat {tmp_path}/topo; cat {tmp_path}/rows")
    monkeypatch.setenv("PATH", "/bin:/usr/bin")
    where = {uuid(0): [1], uuid(1): []}
    here = next((one for one in where if one in rows), uuid(0))
    ours = Found("nvidia.com/gpu", here, numa=where[here], attributes=OURS)
    found = [*compare([ours], {"driver-root-ctr-path": str(tmp_path / "root")})]
    assert expected in found[0].found


@pytest.mark.parametrize(
    ("program", "expected"),
    [
        ("echo broken >&2; exit 3", "status 3: broken"),
        ("kill -9 $$", "status -9: no message"),
        (None, "is not on this machine"),
    ],
)
def test_without_nvidia_smi_nothing_is_compared(
    tmp_path: Path, program: str | None, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    if program:
        script(tmp_path / "nvidia-smi", program)
    (found,) = compare([], {"driver-root-ctr-path": "/nowhere"})
    assert (Verdict.UNKNOWN, expected) == (found.verdict, found.found)


MOUNTED = "/var/run/nvidia-container-devices"


@pytest.mark.parametrize(
    ("variable", "program", "names", "why"),
    [
        ("GPU-a,GPU-b", "exit 0", ["GPU-a", "GPU-b"], ""),
        (MOUNTED, "exit 0", ["GPU-c"], ""),
        ("", "exit 0", [], "the answer names no device: NVIDIA_VISIBLE_DEVICES is ''"),
        (
            "GPU-a",
            "echo no GPU >&2; exit 1",
            ["GPU-a"],
            "nvidia-ctk cdi generate: status 1: no GPU",
        ),
        ("GPU-a", None, ["GPU-a"], "nothing on this machine reads NVIDIA_VISIBLE_DEVICES: "),
    ],
)
def test_devices_of_nvidias_runtime_are_those_that_the_answer_names(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    variable: str,
    program: str | None,
    names: list[str],
    why: str,
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    if program:
        script(tmp_path / "nvidia-ctk", program)
    elif shutil.which("nvidia-ctk", path="/usr/bin:/usr/local/bin"):
        pytest.skip("NVIDIA's toolkit is on this machine")
    given = {"NVIDIA_VISIBLE_DEVICES": variable}
    found, problem = cdi_devices(given, [f"{MOUNTED}/GPU-c", "/other"], tmp_path / "cdi")
    assert [f"nvidia.com/gpu={name}" for name in names] == found
    assert problem.startswith(why)
    assert bool(why) == bool(problem)


WRONG: list[tuple[list[str], str]] = [
    (["gpu", "--strategy=cdi"], "no strategy 'cdi': did you mean cdi-cri?"),
    (
        ["gpu", "--", "--device-list-strategy=envvar"],
        "--device-list-strategy=envvar: each strategy is",
    ),
    (["gpu", "--report=/nowhere/report.md"], "--report /nowhere/report.md: cannot be written"),
    (["gpu", "--prvoke"], "--provoke"),
    (["lamp"], "'lamp' is not a plugin with an acceptance: installed are "),
    (["amd", "--provoke"], "--provoke: amd has no error that leaves a device healthy"),
    (["gpu"], "needs root: it makes device nodes and namespaces"),
]


@pytest.mark.parametrize(("words", "expected"), WRONG)
def test_a_wrong_command_line_ends_with_status_2(
    words: list[str],
    expected: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 65534 if words == ["gpu"] else 0)
    assert 2 == _cli.main(words)
    assert expected in capsys.readouterr().err
