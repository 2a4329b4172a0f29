import os
import socket
import threading
import time
from pathlib import Path

import pytest

from deviceplugin_testing.simulator import KubeletStopped, StubPlugin
from kubelets.equipped import Kubelet, R
from patience import eventually


# As upstream's TestNewManagerImpl and TestNewManagerImplStart.
def test_a_stopped_kubelet_forgets_everything_and_leaves_its_socket_to_refuse_connections(
    kubelet: Kubelet,
) -> None:
    plugin = kubelet.plugin()
    before = kubelet.kubelet_socket.stat().st_ino
    kubelet.stop()
    kubelet.stop()
    plugin.wait(lambda: plugin.streams == 0)
    assert not kubelet.running
    assert set() == kubelet.registered
    assert {} == kubelet.devices(R)
    with pytest.raises(LookupError):
        kubelet.hang_up(R)
    with pytest.raises(KubeletStopped, match="the kubelet is not running"):
        kubelet.tick()
    assert before == kubelet.kubelet_socket.stat().st_ino
    with socket.socket(socket.AF_UNIX) as client, pytest.raises(ConnectionRefusedError):
        client.connect(str(kubelet.kubelet_socket))


def test_a_restart_removes_sockets_and_links_to_them_and_nothing_else(kubelet: Kubelet) -> None:
    directory = kubelet.plugin_dir
    kubelet.stub()
    (directory / "link.sock").symlink_to("sub/stub.sock")
    (directory / "dangling.sock").symlink_to("nowhere")
    (directory / "fake.sock").touch()
    os.mkfifo(directory / "fifo")
    (directory / "sub").mkdir()
    StubPlugin(directory / "sub", R).start()
    kubelet.restart()
    expected = {"dangling.sock", "fake.sock", "fifo", "sub", "kubelet.sock"}
    assert expected == {path.name for path in directory.iterdir()}
    assert (directory / "sub" / "stub.sock").exists()


def test_hanging_up_ends_the_stream_and_the_devices_are_unhealthy(kubelet: Kubelet) -> None:
    plugin = kubelet.plugin()
    kubelet.hang_up(R)
    plugin.wait(lambda: plugin.streams == 0)
    kubelet.wait_for(R, (), {"a", "b"})
    assert (2, 0) == (kubelet.capacity(R), kubelet.allocatable(R))
    assert set() == kubelet.registered
    plugin.register()
    kubelet.wait_for(R, {"a", "b"})


def test_a_register_call_that_hangs_does_not_keep_the_kubelet_from_stopping(
    kubelet: Kubelet,
) -> None:
    plugin = kubelet.stub()
    plugin.hold("GetDevicePluginOptions")
    with kubelet.registering(plugin):
        plugin.wait(lambda: plugin.calls)
        kubelet.stop()
    assert not kubelet.running


def test_restarts_leak_neither_threads_nor_descriptors(kubelet: Kubelet) -> None:
    def cycle() -> None:
        plugin = kubelet.stub()
        plugin.register()
        kubelet.wait_for(R, {"a", "b"})
        kubelet.restart()
        plugin.stop()

    def descriptors() -> int:
        return sum(1 for _ in Path("/proc/self/fd").iterdir())

    cycle()
    threads, files = threading.active_count(), descriptors()
    for _ in range(10):
        cycle()
    eventually(lambda: threading.active_count() <= threads, "the ends of threads")
    assert descriptors() <= files + 2


def test_waiting_in_vain_tells_what_is(kubelet: Kubelet) -> None:
    kubelet.plugin()
    many = {f"d{number:04}" for number in range(1000)}
    text = (
        r"waited 0 s for x.io/dev to have healthy \['d0000', .*, 'd0019'\] and 980 more "
        r"unhealthy \[\]; the kubelet is running, "
        r"seed 0: x.io/dev \(connected\) has healthy \['a', 'b'\] unhealthy \[\]"
    )
    with pytest.raises(TimeoutError, match=text):
        kubelet.wait_for(R, many, timeout=0)


def test_starting_and_stopping_take_less_than_200_ms_unless_the_machine_is_busy(
    root: Path,
) -> None:
    kubelet = Kubelet(root)

    def quick() -> bool:
        start = time.perf_counter()
        kubelet.start()
        started = time.perf_counter()
        kubelet.stop()
        return started - start < 0.2 and time.perf_counter() - started < 0.2

    eventually(quick, "a quick start and stop")


def test_a_kubelet_that_cannot_listen_does_not_start_and_leaves_nothing_running(
    root: Path,
) -> None:
    with pytest.raises(ValueError, match="use a shorter root"):
        Kubelet(root / ("a" * 100)).start()
    kubelet = Kubelet(root)
    kubelet.stop()
    kubelet.kubelet_socket.mkdir(parents=True)
    before = threading.active_count()
    with pytest.raises(FileExistsError):
        kubelet.start()
    assert not kubelet.running
    assert threading.active_count() <= before
    kubelet.kubelet_socket.rmdir()
    with kubelet, pytest.raises(RuntimeError, match="running already"):
        kubelet.start()


def test_waiting_sees_what_is_not_the_kubelets_own(kubelet: Kubelet) -> None:
    happened: list[int] = []
    timer = threading.Timer(0.05, happened.append, [7])
    timer.start()
    assert [7] == kubelet.wait(lambda: happened, timeout=10)
    timer.join()
