"""The command, with the fake driver, in a process of its own."""

import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from conformant import check
from deviceplugin_gpu.command_line import Command
from deviceplugin_testing.simulator import SimulatedKubelet
from gpu.fake_nvml import FakeNvml, Fleet
from gpu.rig import GPU, GpuRig, uuids
from patience import PATIENCE, eventually
from plugin_process import started
from served.both_protocols import by_both


def test_a_plugin_that_is_made_anew_has_the_driver_of_the_one_before(rig: GpuRig) -> None:
    command = Command()
    before, after = (command.make(rig.settings()) for _ in range(2))
    assert before._driver is after._driver
    after._driver.close()


def test_a_driver_that_is_not_loaded_ends_it_only_if_that_is_asked_for(
    rig: GpuRig, capsys: pytest.CaptureFixture[str]
) -> None:
    rig.fake.drop_driver()
    Command().make(rig.settings(fail_on_init_error=False))
    with pytest.raises(SystemExit) as end:
        Command().make(rig.settings(fail_on_init_error=True))
    assert 1 == end.value.code
    told = capsys.readouterr().err
    assert "NVML cannot be initialized, and fail-on-init-error is true\n" in told
    assert "  to do: " in told


COMMAND = Path(sys.executable).with_name("gpu-device-plugin")


@pytest.fixture
def fake(tmp_path: Path) -> FakeNvml:
    return FakeNvml(tmp_path / "nvml", Fleet.of(2, name="NVIDIA A100-SXM4-40GB", memory=40960))


@pytest.fixture
def simulated() -> Iterator[SimulatedKubelet]:
    # Sockets need a short path.
    with TemporaryDirectory(prefix="dp") as path, SimulatedKubelet(Path(path)) as kubelet:
        yield kubelet


def test_without_a_library_it_ends_with_status_1_and_says_what_was_tried(
    fake: FakeNvml, tmp_path: Path
) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "deviceplugin_gpu", "--once", f"--driver-root-ctr-path={tmp_path}"],
        env=fake.environment(tmp_path / "nothing"),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert (1, "") == (done.returncode, done.stdout)
    assert f"not in {tmp_path}/{{usr/lib64," in done.stderr


def test_it_waits_for_the_driver_takes_another_configuration_and_stops_on_sigterm(
    fake: FakeNvml, nvml_library: Path, simulated: SimulatedKubelet, tmp_path: Path
) -> None:
    file = tmp_path / "config.json"
    file.write_text(json.dumps({"exclude": ["0"]}))
    fake.drop_driver()
    flags = ["--fail-on-init-error=false", f"--config-file={file}", "--state-file="]
    often = ["--discovery-interval=100ms", "--poll-interval=100ms"]
    pods = f"--pod-resources-socket={simulated.pod_resources_socket}"
    environment = fake.environment(nvml_library)
    with started(
        simulated.plugin_dir, *flags, *often, pods, command=str(COMMAND), **environment
    ) as process:
        eventually(lambda: fake.calls()["nvmlInitWithFlags"] > 1, "more attempts")
        fake.mend()
        simulated.wait_for(GPU, uuids(1))
        file.write_text("{")
        inits = fake.calls()["nvmlInitWithFlags"]
        file.write_text(json.dumps({"exclude": ["2"]}))
        simulated.wait_for(GPU, uuids(0, 1))
        assert inits == fake.calls()["nvmlInitWithFlags"]
        assert 0 == process.stop()


@pytest.mark.slow
def test_the_plugin_conforms(
    tmp_path: Path, nvml_library: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = FakeNvml(tmp_path / "nvml", Fleet.of(8, switch=12))
    # Waits of the fake are looks at a file: fewer of them, or they are what is measured.
    for name, value in {**fake.environment(nvml_library), "FAKE_NVML_TURN": "100"}.items():
        monkeypatch.setenv(name, value)
    lose = f"sed -i '/^gpu 0 /s/$/ state=lost/; $aevent 1 xid gpu=1 code=31' {fake.path}"
    flags = ["--pass-device-specs", "--device-list-strategy=envvar,volume-mounts,cdi-cri"]
    paths = [f"--cdi-dir={tmp_path}/cdi", f"--state-file={tmp_path}/health.json"]
    passed = check([str(COMMAND), *flags, *paths], lose)
    assert {"allocation.device-nodes", "allocation.cdi-names"} <= passed


def test_a_container_gets_the_same_gpus_through_either_protocol(rig: GpuRig) -> None:
    rig.has(Fleet.of(2))
    root = Path(tempfile.mkdtemp(prefix="dp"))  # short, for sockets
    try:
        expected, found = by_both(root, rig.plugin)
    finally:
        shutil.rmtree(root)
    assert [1, 2] == sorted(len(ids) for resource, ids in found if resource == GPU)
    assert expected == found
