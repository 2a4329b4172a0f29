"""What must not grow, whatever the machine: checked by counting, not by a clock.

A number here is what it is today, rounded up. Raise one only with a reason in the commit, and say
in ``docs/performance.md`` what it buys.
"""

import gc
import json
import os
import subprocess
import sys
import threading
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from functools import cache, partial
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import Request, urlopen

import pytest
from typing_extensions import override

import deviceplugin as dp
from deviceplugin._attribution.ownership import Ownership
from deviceplugin._inventory.published import Resource
from deviceplugin._kubelet.offer import Offer
from deviceplugin_testing.conformance._process import activity
from deviceplugin_testing.conformance._subject import free_port
from deviceplugin_testing.fixture import Kubelet
from deviceplugin_testing.tools.bench import _plan
from deviceplugin_testing.tools.bench._subject import BenchSubject, running
from gpu import fake_library
from gpu.fake_nvml import FakeNvml, Fleet
from patience import eventually

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


@cache
def modules(statement: str) -> frozenset[str]:
    program = f"{statement}; import sys, json; print(json.dumps(sorted(sys.modules)))"
    command = [sys.executable, "-I", "-c", program]
    result = subprocess.run(command, capture_output=True, check=True, text=True)
    return frozenset(json.loads(result.stdout))


def test_importing_the_package_loads_no_grpc_and_little_else() -> None:
    bare = modules("pass")
    loaded = modules("import deviceplugin") - bare
    assert not {name for name in loaded if name.startswith(("grpc", "google", "prometheus_client"))}
    assert 170 > len(loaded)


LATER = {
    "prometheus_client": "the first scrape",
    "http": "the HTTP server, after the start",
    "html": "the page",
    "email": "the HTTP server, after the start",
    "importlib.metadata": "--version and the first scrape",
    "tenacity": "the first failure",
    "difflib": "a mistake in the settings",
    "hashlib": "a configuration file",
    "secrets": "nothing",
    "deviceplugin._http.server": "the HTTP server, after the start",
    "deviceplugin._http.page": "the page",
    "deviceplugin._telemetry.exposition": "the first scrape",
    "deviceplugin._registration.watcher_service": "a node without the kubelet's directory",
    "deviceplugin._app.dra": "DRA",
}
"""What may be imported only after the first list, and for what."""
SERVES = "import deviceplugin._app.command, deviceplugin._app.host"
LIBRARIES = "import grpc, concurrent.futures.thread, google.protobuf.descriptor_pb2"


def test_what_serves_loads_no_more_than_it_needs() -> None:
    bare = modules("pass")
    libraries = modules(LIBRARIES) - bare
    loaded = modules(SERVES) - bare
    assert not HEAVY & {name.partition(".")[0] for name in loaded}
    own = {name for name in loaded if name.partition(".")[0] == "deviceplugin"}
    assert not {name for name in own if name.startswith("deviceplugin.tools")}
    assert 42 > len(loaded - own - libraries), "more of others' modules than a bare program"


def test_what_the_first_list_does_not_need_is_imported_later() -> None:
    early = modules(SERVES) - modules(LIBRARIES)
    assert {} == {name: purpose for name, purpose in LATER.items() if name in early}


PROBE = """
import sys, threading, json
from pathlib import Path
import deviceplugin as dp
from deviceplugin._kubelet.streams import Streams

class Probed(dp.Plugin):
    resource = "budget.example/dev"
    def discover(self):
        return [dp.Device("a")]

serve = Streams.serve
async def probed(self, write):
    async def first(answer):
        if len(sys.argv) > 1:
            Path(sys.argv.pop()).write_text(json.dumps(sorted(sys.modules)))
        await write(answer)
    return await serve(self, first)
Streams.serve = probed
dp.main(Probed, argv=[])
"""


def test_a_plugin_with_http_has_no_server_before_its_first_list(tmp_path: Path) -> None:
    file = tmp_path / "modules.json"
    command = (sys.executable, "-c", PROBE, str(file))
    subject = BenchSubject(title="probe", command=command, http_address="127.0.0.1:0")
    with running(subject) as run:
        run.wait_listed()
        loaded = set(json.loads(file.read_text()))
    assert {"grpc", "deviceplugin._http.listener"} <= loaded
    # On a machine so slow that the start takes a second, the server is loaded during it.
    never = {"prometheus_client", "tenacity", "deviceplugin._telemetry.exposition"}
    assert not never & loaded


def test_http_is_served_without_what_writes_metrics_until_somebody_scrapes(
    kubelet: Kubelet,
) -> None:
    with kubelet.running(Eight(), http_address="127.0.0.1:0") as node:
        node.wait_for(RESOURCE, {f"dev{number}" for number in range(8)})
        metrics = node.host._metrics
        assert metrics._exposition is None
        assert b"deviceplugin_registered" in metrics.expose("")[1]
        assert metrics._exposition is not None


NEVER: Mapping[str, Collection[str]] = {
    "_hashlib": (),
    "_ssl": (),
    "bz2": ("gpu", "node"),  # NVIDIA's library and importlib.metadata need it
    "google.protobuf.text_format": (),
    "importlib.metadata": ("node",),  # which looks for plugins
    "prometheus_client.exposition": (),
    "statistics": (),
    "urllib.request": (),
}
"""What a plugin does not load that is at rest and scraped by Prometheus, but for these."""
WATCHED = r"""
import sys, traceback
file, names, entry = sys.argv[1:4]
del sys.argv[1:4]
def see(event, arguments):
    if event == "import" and arguments[0] in names.split(","):
        frames = [one for one in traceback.extract_stack()[-2::-1] if one.filename[0] == "/"]
        with open(file, "a") as output:
            print(arguments[0], *(f"{one.filename}:{one.lineno}" for one in frames), file=output)
sys.addaudithook(see)
module, _, function = entry.partition(":")
getattr(__import__(module, fromlist=[function]), function)()
"""
PROMETHEUS = "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,*/*;q=0.2"
ENTRIES = {
    one.name.removesuffix("-device-plugin"): one.value
    for one in entry_points(group="console_scripts")
    if one.name.endswith("-device-plugin")
}
WORDS = {
    "generic": ["--device={name: nothing, groups: [{paths: [{path: /dev/null}]}]}"],
    "node": ["gopher", "simulated"],
}


@pytest.mark.parametrize("plugin", sorted(ENTRIES))
def test_a_plugin_that_prometheus_scrapes_loads_neither_tls_nor_clients(
    plugin: str, kubelet: Kubelet, tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    imports, port, variables = tmp_path / "imports", free_port(), dict[str, str]()
    if plugin == "gpu":
        library = fake_library.build_or_skip(fake_library.kept(pytestconfig, "fake-nvml"))
        variables = FakeNvml(tmp_path / "nvml", Fleet.of(2)).environment(library)
    names = [name for name, others in NEVER.items() if plugin not in others]
    words = [sys.executable, "-c", WATCHED, str(imports), ",".join(names), ENTRIES[plugin]]
    imports.touch()
    words += [*WORDS.get(plugin, ()), f"--http-address=127.0.0.1:{port}"]
    words += [f"--plugin-dir={kubelet.simulated.plugin_dir}"]
    environment = {**os.environ, **variables, "DP_STATE_FILE": ""}
    with subprocess.Popen(words, env=environment) as process:
        try:
            for path in ("healthz", "metrics", "metrics", "devices"):
                url = f"http://127.0.0.1:{port}/{path}"
                eventually(partial(get, url, process), f"an answer of {path}")
        finally:
            process.kill()
    assert [] == imports.read_text().splitlines(), "modules, and who imports them"


def get(url: str, process: subprocess.Popen[bytes]) -> bytes:
    """Return the answer as Prometheus gets it, nothing if there is none yet."""
    assert process.poll() is None
    with suppress(URLError), urlopen(Request(url, headers={"Accept": PROMETHEUS})) as answer:
        body: bytes = answer.read()
        return body
    return b""


def threads(pid: int) -> int:
    """Return how many there are without the pool of grpc's core, which grows on a busy machine."""
    names = []
    for path in Path(f"/proc/{pid}/task").glob("*/comm"):
        with suppress(OSError):  # it has ended meanwhile
            names.append(path.read_text().strip())
    return len([name for name in names if name != "event_engine"])


@pytest.mark.slow
def test_a_plugin_that_serves_has_few_threads_and_descriptors() -> None:
    with running(_plan.gopher()) as run:
        run.wait_listed()
        eventually(lambda: 15 > threads(run.pid), "the threads of the start to end")
        holdings = run.holdings()
        before = activity(run.pid)
        run.kubelet.allocate(min(run.kubelet.registered), ["dev0"])
        cpu, wakeups = activity(run.pid).since(before)
    assert 21 > holdings.descriptors
    assert 10 > holdings.sockets
    assert 0 < wakeups, "the counter of the budgets below counts"
    assert 0 <= cpu


@pytest.mark.slow
def test_a_resource_more_costs_no_thread_two_descriptors_and_no_wakeup() -> None:
    with running(_plan.many(1, 1)) as one, running(_plan.many(1, 21)) as many:
        one.wait_listed()
        many.wait_listed()
        eventually(lambda: threads(one.pid) >= threads(many.pid), "the threads of the start to end")
        assert 2 * 20 >= many.holdings().descriptors - one.holdings().descriptors
        before = activity(many.pid)
        threading.Event().wait(1.0)
        _, wakeups = activity(many.pid).since(before)
    assert 50 > wakeups, "five times a second for each resource were 100"


def own_wakeups(seconds: float) -> dict[str, int]:
    """The voluntary switches of our threads over some time in which nothing happens."""
    lasting = [each for each in threading.enumerate() if not each.name.startswith("Thread-")]
    before = activity(os.getpid()).by_thread
    threading.Event().wait(seconds)
    after = activity(os.getpid()).by_thread
    return {
        thread.name: after[number][1] - before[number][1]
        for thread in lasting
        if (number := thread.native_id) in before.keys() & after.keys()
        and thread is not threading.current_thread()
    }


def test_threads_of_ours_sleep_while_nothing_happens(kubelet: Kubelet) -> None:
    usual = dp.Settings()
    intervals = {
        "discovery_interval": usual.discovery_interval,
        "poll_interval": usual.poll_interval,
    }
    with kubelet.running(Eight(), http_address="127.0.0.1:0", **intervals) as node:
        node.wait_for(RESOURCE, {f"dev{number}" for number in range(8)})
        with urlopen(f"http://127.0.0.1:{node.host.http_port}/healthz"):
            pass  # the server has been loaded: the start is over
        switches = own_wakeups(1.5)
    ours = {
        name: count
        for name, count in switches.items()
        if name.startswith(("file-watcher", "http", "discovery", "endpoint", "holders", "release"))
    }
    assert {"file-watcher", "http"} <= ours.keys()
    assert 3 >= sum(ours.values()), f"2 a second at the most: {ours}"


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
    resource, lists = Resource(RESOURCE, Eight()), list[Any]()
    offer = Offer(resource, Ownership())
    offer.watch(lambda: lists.append(offer.latest()))
    devices = [*Eight().discover()]
    ill = [dp.Device("dev0", health=dp.Health.unhealthy("dust")), *devices[1:]]
    for one in (devices, [*Eight().discover()], ill):
        resource.publish(one)
    first, second = lists
    assert len(first) + len("Unhealthy") - len("Healthy") == len(second)


@pytest.mark.parametrize(("count", "size"), [(10, 17), (1000, 19)])
def test_a_device_takes_few_bytes_of_a_list(count: int, size: int) -> None:
    resource = Resource(RESOURCE, Eight())
    resource.publish([dp.Device(f"dev{number}") for number in range(count)])
    encoded: Any = Offer(resource, Ownership()).latest()
    assert size >= len(encoded) / count
