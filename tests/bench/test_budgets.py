"""What must not grow, whatever the machine: checked by counting, not by a clock.

A number here is what it is today, rounded up. Raise one only with a reason in the commit, and say
in ``docs/performance-notes.md`` what it buys.
"""

import gc
import json
import subprocess
import sys
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from typing_extensions import override

import deviceplugin as dp
from deviceplugin._inventory.published import Resource
from deviceplugin.conformance._proc import activity
from deviceplugin.testing import Kubelet
from deviceplugin.tools.bench import _plan
from deviceplugin.tools.bench._subject import running

RESOURCE = "budget.example/dev"
HEAVY = {
    "multiprocessing",
    "unittest",
    "xml.etree",
    "pyudev",
    "pynvml",
    "yaml",
    "sqlite3",
    "pytest",
}


class Eight(dp.Plugin):
    resource = RESOURCE

    @override
    def discover(self) -> Iterable[dp.Device]:
        return [dp.Device(f"dev{number}") for number in range(8)]


def modules(statement: str) -> set[str]:
    program = f"{statement}; import sys, json; print(json.dumps(sorted(sys.modules)))"
    command = [sys.executable, "-I", "-c", program]
    result = subprocess.run(command, capture_output=True, check=True, text=True)
    return set(json.loads(result.stdout))


def test_importing_the_package_loads_no_grpc_and_little_else() -> None:
    bare = modules("pass")
    loaded = modules("import deviceplugin") - bare
    assert not {name for name in loaded if name.startswith(("grpc", "google", "prometheus_client"))}
    assert 170 > len(loaded)


def test_what_serves_loads_no_more_than_it_needs() -> None:
    bare = modules("pass")
    libraries = modules("import deviceplugin.tools.bench._bare") - bare
    loaded = modules("import deviceplugin._app.command, deviceplugin._app.host") - bare
    assert not HEAVY & {name.partition(".")[0] for name in loaded}
    own = {name for name in loaded if name.partition(".")[0] == "deviceplugin"}
    assert 110 > len(own)  # small ones; what counts is that no tool is among them
    assert not {name for name in own if name.startswith("deviceplugin.tools")}
    assert 35 > len(loaded - own - libraries), "more of others' modules than a bare program"


def threads(pid: int) -> int:
    """Return how many there are without the pool of grpc's core, which grows on a busy machine."""
    names = [path.read_text().strip() for path in Path(f"/proc/{pid}/task").glob("*/comm")]
    return len([name for name in names if name != "event_engine"])


def test_a_plugin_that_serves_has_few_threads_and_descriptors() -> None:
    with running(_plan.gopher()) as run:
        run.wait_listed()
        holdings = run.holdings()
        assert 13 > threads(run.pid)
    assert 16 > holdings.descriptors
    assert 6 > holdings.sockets


def test_a_resource_more_costs_three_threads() -> None:
    counted = []
    for resources in (1, 5):
        with running(_plan.many(1, resources)) as run:
            run.wait_listed()
            counted.append(threads(run.pid))
    assert 3 * 4 >= counted[1] - counted[0]


def own_wakeups(seconds: float) -> dict[str, int]:
    """The voluntary switches of our threads over some time in which nothing happens."""
    before = {thread.native_id: _switches(thread.native_id) for thread in threading.enumerate()}
    threading.Event().wait(seconds)
    return {
        thread.name: _switches(thread.native_id) - before[thread.native_id]
        for thread in threading.enumerate()
        if thread.native_id in before and thread is not threading.current_thread()
    }


def _switches(thread: int | None) -> int:
    text = Path(f"/proc/self/task/{thread}/status").read_text()
    (line,) = [line for line in text.splitlines() if line.startswith("voluntary_ctxt_switches")]
    return int(line.split()[1])


def test_threads_of_ours_sleep_while_nothing_happens(kubelet: Kubelet) -> None:
    usual = dp.Settings()
    intervals = {
        "discovery_interval": usual.discovery_interval,
        "poll_interval": usual.poll_interval,
    }
    with kubelet.running(Eight(), http_address="127.0.0.1:0", **intervals) as node:
        node.wait_for(RESOURCE, {f"dev{number}" for number in range(8)})
        switches = own_wakeups(2.0)
    ours = {
        name: count
        for name, count in switches.items()
        if name.startswith(("file-watcher", "http", "discovery", "endpoint", "holders", "release"))
    }
    assert {"file-watcher", "http"} <= ours.keys()
    assert 4 >= sum(ours.values()), f"2 a second at the most: {ours}"


def test_allocations_leave_nothing_behind(kubelet: Kubelet) -> None:
    with kubelet.running(Eight()) as node:
        node.wait_for(RESOURCE, {f"dev{number}" for number in range(8)})

        def blocks(count: int) -> int:
            for _ in range(count):
                node.kubelet.allocate(RESOURCE, ["dev0"])
            gc.collect()
            return sys.getallocatedblocks()

        before = blocks(200)
        after = blocks(1000)
    assert 1000 > after - before, "an object for each request is kept"


def test_a_change_is_told_in_one_list_and_no_change_in_none() -> None:
    resource = Resource(RESOURCE, Eight())
    devices = [*Eight().discover()]
    resource.publish(devices)
    first = resource.next_list(None, lambda: True)
    assert first is not None
    resource.publish([*Eight().discover()])
    assert resource.next_list(first, lambda: True) is None
    ill = [dp.Device("dev0", health=dp.Health.unhealthy("dust")), *devices[1:]]
    resource.publish(ill)
    second = resource.next_list(first, lambda: True)
    assert second is not None
    assert len(first) + len("Unhealthy") - len("Healthy") == len(second)


@pytest.mark.parametrize(("count", "size"), [(10, 17), (1000, 19)])
def test_a_device_takes_few_bytes_of_a_list(count: int, size: int) -> None:
    resource = Resource(RESOURCE, Eight())
    resource.publish([dp.Device(f"dev{number}") for number in range(count)])
    encoded: Any = resource.next_list(None, lambda: True)
    assert size >= len(encoded) / count


def test_the_counters_that_budgets_are_checked_with_count() -> None:
    with running(_plan.gopher()) as run:
        run.wait_listed()
        before = activity(run.pid)
        run.kubelet.allocate(min(run.kubelet.registered), ["dev0"])
        cpu, wakeups = activity(run.pid).since(before)
    assert 0 < wakeups
    assert 0 <= cpu
