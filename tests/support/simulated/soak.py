"""Many devices that fail at random, on a simulated kubelet: do both sides agree at the end?

``python tests/support/simulated/soak.py --seconds 60`` prints what it saw; exit status 1 if the
kubelet's view is not the plugin's.
"""

import argparse
import json
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from deviceplugin_simulated import SimulatedSettings
from deviceplugin_simulated.scenario import load
from deviceplugin_testing.tools.bench._subject import BenchSubject, Run, running

RESOURCE = "example.com/soak"
_LOOKS = 6
"""How often memory is measured, besides the start."""


def soak(devices: int, seconds: float, seed: int, every: str) -> dict[str, object]:
    """Run the plugin's command on a kubelet for so long; return what was seen, also at the end."""
    # Faults at random pass before the end, so that nothing happens while both sides are compared;
    # some of the timeline's stay.
    last_fault = 0.7 * seconds
    timeline = [
        {
            "at": f"{index / 100 * seconds:.3f}s",
            "do": ("unhealthy", "unplug")[index % 2],
            "devices": f"soak-node-*{index:02}",
        }
        for index in range(0, 70, 5)
    ]
    document = {
        "resources": {RESOURCE: {"count": devices, "id": "soak-{node}-{index}"}},
        "timeline": timeline,
        "random": {
            "every": every,
            "lasting": f"{seconds / 40:.3f}s",
            "until": f"{last_fault:.3f}s",
            "faults": ["unhealthy", "unplug"],
        },
        "seed": seed,
    }
    with TemporaryDirectory() as folder:
        path = Path(folder, "devices.json")
        path.write_text(json.dumps(document))
        scenario = load(SimulatedSettings(devices=path, node_name="node"))
        program = Path(sys.executable).with_name("simulated-device-plugin")
        flags = [f"--devices={path}", "--node-name=node", "--log-level=warning"]
        with running(BenchSubject(title="soak", command=[str(program), *flags])) as run:
            begin = time.monotonic()
            first_list = run.wait_listed() - begin
            memory = [run.holdings().rss / 2**20]
            for look in range(1, _LOOKS + 1):
                time.sleep(max(0.0, begin + look * seconds / _LOOKS - time.monotonic()))
                memory.append(run.holdings().rss / 2**20)
            life = scenario.life()
            life.advance(float("inf"))
            troubled = life.state.troubles.keys() & {*scenario.targets.ids}
            differences = _differences(run, scenario.targets.ids, troubled)
            lists = run.kubelet.lists_received(RESOURCE)
    assert scenario.process is not None
    return {
        "devices": len(scenario.devices),
        "events": sum(1 for _ in scenario.process.events(scenario.targets, scenario.seed)),
        "lists": lists,  # that the kubelet got
        "first_list": first_list,  # seconds; if after the last fault, no other need follow it
        "last_fault": last_fault,
        "troubled": len(troubled),
        "differences": differences,  # devices of which kubelet and plugin think differently
        "memory_mib": memory,  # over time, once the first list was out
    }


def _differences(run: Run, ids: Sequence[str], troubled: set[str]) -> int:
    """Return how many devices differ, once that are none or after a while.

    What is unplugged is unhealthy to the kubelet, or was never there.
    """

    def differ() -> int:
        known = RESOURCE in run.kubelet.registered
        healthy = run.kubelet.healthy(RESOURCE) if known else frozenset()
        return len(healthy ^ ({*ids} - troubled))

    with suppress(TimeoutError):
        run.kubelet.wait(lambda: not differ(), timeout=10)
    return differ()


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60, help="how long (60)")
    parser.add_argument("--devices", type=int, default=10_000, help="how many (10000)")
    parser.add_argument("--seed", type=int, default=7, help="what faults are made from (7)")
    parser.add_argument("--every", default="5ms", help="mean time between faults (5ms)")
    options = parser.parse_args()
    outcome = soak(options.devices, options.seconds, options.seed, options.every)
    for name, value in outcome.items():
        sys.stdout.write(f"{name:12}  {value}\n")
    return int(outcome["differences"] != 0)


if __name__ == "__main__":
    raise SystemExit(main())
