"""Many devices that fail at random, on a simulated kubelet: do both sides agree at the end?

``python tests/support/simulated/soak.py --seconds 60`` prints what it saw; exit status 1 if the
kubelet's view is not the plugin's.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from deviceplugin_simulated import SimulatedSettings
from deviceplugin_simulated.scenario import Scenario, load
from deviceplugin_testing.simulator import SimulatedKubelet

RESOURCE = "example.com/soak"
_LOOKS = 6
"""How often memory is measured, besides the start."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What was seen."""

    devices: int
    seconds: float
    seed: int
    events: int
    """What happened, by the script."""
    lists: int
    """Lists that the kubelet got."""
    first_list: float
    """Seconds until the first list. After the last fault, no other need follow it."""
    last_fault: float
    troubled: int
    """Devices that were not well at the end."""
    differences: int
    """Devices of which kubelet and plugin think differently at the end."""
    memory_mib: Sequence[float]
    """Resident memory of the plugin over time, once its first list was out."""
    cpu_seconds: float
    """CPU time of the plugin, its start included."""


def soak(devices: int, seconds: float, seed: int, every: str = "5ms") -> Outcome:
    """Run the plugin's command on a kubelet for so long, and compare what both have then."""
    root = Path(tempfile.mkdtemp(prefix="soak-"))
    settings = _write(root, devices, seconds, seed, every)
    scenario = load(settings)
    try:
        with SimulatedKubelet(root / "kubelet") as kubelet:
            process = _start(kubelet, root)
            try:
                return _watch(kubelet, process, scenario, seconds)
            finally:
                process.kill()
                process.wait()
    finally:
        shutil.rmtree(root, ignore_errors=True)


def _write(root: Path, devices: int, seconds: float, seed: int, every: str) -> SimulatedSettings:
    path = root / "devices.json"
    # Faults at random pass before the end, so that nothing happens while both sides are compared;
    # some of the timeline's stay.
    random = {
        "every": every,
        "lasting": f"{seconds / 40:.3f}s",
        "until": f"{_last_fault(seconds):.3f}s",
        "faults": ["unhealthy", "unplug"],
    }
    timeline = [
        {
            "at": f"{index / 100 * seconds:.3f}s",
            "do": ("unhealthy", "unplug")[index % 2],
            "devices": f"soak-node-*{index:02}",
        }
        for index in range(0, 70, 5)
    ]
    resources = {RESOURCE: {"count": devices, "id": "soak-{node}-{index}"}}
    given = {"resources": resources, "timeline": timeline, "random": random, "seed": seed}
    path.write_text(json.dumps(given))
    return SimulatedSettings(devices=path, node_name="node")


def _last_fault(seconds: float) -> float:
    return 0.7 * seconds


def _start(kubelet: SimulatedKubelet, root: Path) -> "subprocess.Popen[bytes]":
    command = Path(sys.executable).with_name("simulated-device-plugin")
    return subprocess.Popen(
        [
            command,
            f"--devices={root / 'devices.json'}",
            "--node-name=node",
            f"--plugin-dir={kubelet.plugin_dir}",
            f"--pod-resources-socket={kubelet.pod_resources_socket}",
            "--http-address=off",
            "--log-level=warning",
        ]
    )


def _watch(
    kubelet: SimulatedKubelet,
    process: "subprocess.Popen[bytes]",
    scenario: Scenario,
    seconds: float,
) -> Outcome:
    begin = time.monotonic()
    kubelet.wait(lambda: kubelet.lists_received(RESOURCE) > 0, timeout=60)
    first_list = time.monotonic() - begin
    memory = [_memory(process.pid)]
    for look in range(1, _LOOKS + 1):
        _pass(kubelet, begin + look * seconds / _LOOKS)
        memory.append(_memory(process.pid))
    life = scenario.life()
    life.advance(float("inf"))
    expected = {one: one not in life.state.troubles for one in scenario.ids}
    _settle(kubelet, expected)
    view = _view(kubelet)
    return Outcome(
        devices=len(scenario.devices),
        seconds=seconds,
        seed=scenario.seed,
        events=_count(scenario),
        lists=kubelet.lists_received(RESOURCE),
        first_list=first_list,
        last_fault=_last_fault(seconds),
        troubled=len(life.state.troubles),
        differences=sum(view.get(one, False) != well for one, well in expected.items()),
        memory_mib=memory,
        cpu_seconds=_cpu(process.pid),
    )


def _view(kubelet: SimulatedKubelet) -> Mapping[str, bool]:
    """Return which devices the kubelet has, and whether they are healthy."""
    if RESOURCE not in kubelet.registered:
        return {}
    found = kubelet.devices(RESOURCE)
    return {device_id: health == "Healthy" for device_id, health in found.items()}


def _pass(kubelet: SimulatedKubelet, until: float) -> None:
    """Let time go on."""
    if (left := until - time.monotonic()) > 0:
        kubelet.wait(lambda: time.monotonic() >= until, timeout=left + 5)


def _settle(kubelet: SimulatedKubelet, expected: Mapping[str, bool]) -> None:
    """Wait until the kubelet has what is expected, for a while.

    What is unplugged is unhealthy to it, or was never there.
    """

    def differ() -> int:
        view = _view(kubelet)
        return sum(view.get(one, False) != well for one, well in expected.items())

    with suppress(TimeoutError):
        kubelet.wait(lambda: not differ(), timeout=10)


def _count(scenario: Scenario) -> int:
    assert scenario.process is not None
    return sum(1 for _ in scenario.process.events(scenario.ids, scenario.seed))


def _memory(pid: int) -> float:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return round(pages * os.sysconf("SC_PAGE_SIZE") / 2**20, 1)


def _cpu(pid: int) -> float:
    ticks = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
    return sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK")


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60, help="how long (60)")
    parser.add_argument("--devices", type=int, default=10_000, help="how many (10000)")
    parser.add_argument("--seed", type=int, default=7, help="what faults are made from (7)")
    parser.add_argument("--every", default="5ms", help="mean time between faults (5ms)")
    options = parser.parse_args()
    outcome = soak(options.devices, options.seconds, options.seed, options.every)
    for name, value in asdict(outcome).items():
        sys.stdout.write(f"{name:12}  {value}\n")
    return int(outcome.differences > 0)


if __name__ == "__main__":
    raise SystemExit(main())
