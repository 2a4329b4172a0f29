from pathlib import Path

from deviceplugin_template import SerialPlugin
from deviceplugin_testing.fixture import Kubelet


def test_plugging_in_an_adapter_makes_it_allocatable(kubelet: Kubelet, tmp_path: Path) -> None:
    with kubelet.running(SerialPlugin(tmp_path)) as node:
        (tmp_path / "ttyUSB0").symlink_to("/dev/null")
        node.wait_for("example.com/serial", {"ttyUSB0"})
        assert "rw" == node.allocate("ttyUSB0").nodes[0].permissions
