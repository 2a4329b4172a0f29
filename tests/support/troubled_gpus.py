"""GPUs that are as each alert on them is about, on the fake driver."""

import re
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path
from typing import Any, Final
from urllib.request import urlopen

import pytest

from deviceplugin_testing.fixture import Kubelet
from gpu import fake_library
from gpu.fake_nvml import Fleet
from gpu.rig import GPU, GpuRig, uuids
from patience import eventually
from trouble import Scrapes, Trouble, in_pod


class GpuNode(ExitStack):
    """A node with two virtual GPUs of the fake driver, whose plugin logs to a file."""

    def __init__(self, root: Path) -> None:
        super().__init__()
        self.log, self._root = root / "log", root
        patch = self.enter_context(pytest.MonkeyPatch.context())
        library = fake_library.build_or_skip(root / "library")
        end = "2099-01-31T12:00:00"
        fleet = Fleet.of(2, virtualization="vgpu", license="licensed", license_expiry=end)
        self.rig = GpuRig(root, library, patch).has(fleet)
        self.now = self.rig.now = 1e4
        self.callback(self.rig.close)

    def start(self, **settings: Any) -> int:
        """Run the plugin, and return the port of its page of metrics."""
        kubelet = self.enter_context(Kubelet(self._root / "kubelet"))
        quick = {"discovery_interval": timedelta(seconds=0.1), "http_address": "127.0.0.1:0"}
        plugin = self.rig.plugin(**settings)
        self._node = self.enter_context(kubelet.running(plugin, **quick))
        self._node.wait_for(GPU, uuids(0, 1))
        eventually(lambda: self.rig.fake.calls()["nvmlEventSetWait_v2"])
        return self._node.host.http_port

    def shell(self, command: str) -> str:
        socket = self._node.kubelet.pod_resources_socket
        return in_pod(command, self.log, socket, self._node.host.http_port)

    def pod(self) -> str:
        return "x"

    def scrape(self, until: str = "") -> str:
        """Return the plugin's metrics, once ``until`` is among them."""
        url = f"http://127.0.0.1:{self._node.host.http_port}/metrics"
        self.now += 10
        self.rig.now = self.now  # what was measured before is out of date

        def read() -> str:
            with urlopen(url) as answer:
                text = str(answer.read().decode())
            return text if re.search(until, text) else ""

        return eventually(read, until)


def trouble(
    until: str, sign: str, before: str = "", xid: int = 0, recovery: float = 300, **values: Any
) -> Trouble:
    """Return that metrics have ``before``, and once the second GPU has ``values``, ``until``."""

    def happens(node: GpuNode) -> Scrapes:
        node.start(recovery_time=timedelta(seconds=recovery))
        yield node.scrape(before)
        node.rig.fake.change(1, **values)
        if xid:
            node.rig.fake.xid(1, xid)
        yield node.scrape(until)

    return Trouble(happens, sign)


_ECC: Final = r'_ecc_errors_total{type="uncorrected",uuid=\S+ '
OF_GPUS: Final = {
    "GpuXidError": trouble('_unhealthy{cause="xid_79"', "the GPU is off the PCIe bus", xid=79),
    "GpuLost": trouble('_unhealthy{cause="unreadable"', "GPU is lost", state="lost"),
    "GpuRowRemappingFailed": trouble(
        r"(?s)_healthy\S+ 0\.0.*_row_remapping_failed{uuid=\S+ 1\.0",
        "remapping a broken memory row failed",
        remap_failed=True,
    ),
    "GpuEccUncorrectable": trouble(
        rf'(?s)cause="xid_48".*{_ECC}1\.0', "XID 48", rf"{_ECC}0\.0", 48, uncorrected=1
    ),
    "GpuThrottled": trouble(
        r'(?s)(?=.*state="degraded").*_throttled{reason="hardware_thermal",uuid=\S+ 1\.0',
        "the hardware slows it down: it is too hot",
        recovery=0,
        throttle=0x48,
    ),
    "GpuLicenseMissing": trouble(
        'state="unlicensed"', "vGPU license missing", 'state="licensed"', license="unlicensed"
    ),
}
