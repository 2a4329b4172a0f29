"""Draw the pictures of pages: what a browser shows of programs that run for it.

    drawings.py page                   common/docs/page.png: the page of a node with eight GPUs
    drawings.py dashboard [SECONDS]    demo/dashboards/device-plugins.png: three simulated nodes,
                                       watched by a Prometheus for so long (120)

Both need Chromium (apt-get install chromium). The page also needs a C compiler, for the fake driver
of the GPU plugin; the dashboard Prometheus (apt-get install prometheus).
"""

import hashlib
import itertools
import json
import random
import re
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Final
from urllib.error import URLError
from urllib.request import urlopen

import deviceplugin as dp
from browser import BROWSERS, PATIENCE, draw, program
from deviceplugin_testing.fixture import Kubelet
from deviceplugin_testing.simulator import Pod, SimulatedKubelet

ROOT: Final = Path(__file__).parents[2]
SOURCES: Final = {
    "page": [f"common/node/src/deviceplugin/_http/page.{kind}" for kind in ("html", "css", "js")],
    "dashboard": ["demo/dashboards/device-plugins.json", "demo/dashboards/draw.py"],
}
"""What a picture is of. It has their checksum, so that a test sees when it is too old."""
PAGE: Final = ROOT / "common/docs/page.png"
DASHBOARD: Final = ROOT / "demo/dashboards/device-plugins.png"
WIDE, NARROW, GAP, HEIGHT = 1280, 390, 16, 900
DASHBOARD_SIZE: Final = (1000, 1042)
FRAMES: Final = """<!DOCTYPE html><style>
body {{ margin: 0; display: flex; gap: {gap}px; background: #c5ccd3 }}
iframe {{ border: 0; height: {height}px }}
</style>
<iframe src="page.html" width="{wide}"></iframe><iframe src="page.html" width="{narrow}"></iframe>
"""
PODS: Final = {"llama-70b-0": ("server", 2), "notebook-ada-6d5f9c": ("jupyter", 1)}
"""Pods that hold GPUs: their container, and how many."""


def checksum(name: str) -> str:
    """Return the checksum of what a picture is of."""
    contents = [(ROOT / source).read_bytes() for source in SOURCES[name]]
    return hashlib.sha256(b"\0".join(contents)).hexdigest()


def free_address() -> str:
    """Return an address of this machine that nobody serves."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        return f"127.0.0.1:{free.getsockname()[1]}"


def read(address: str) -> bytes:
    """Return what an address serves, as soon as it does."""
    limit = time.monotonic() + PATIENCE
    while True:
        try:
            with urlopen(address, timeout=PATIENCE) as answer:  # noqa: S310
                found: bytes = answer.read()
        except URLError:
            if time.monotonic() > limit:
                raise
            time.sleep(0.1)
        else:
            return found


# The page of a node


def draw_page() -> None:
    """Draw the page of a GPU node, of which one GPU has failed, in two widths."""
    program(BROWSERS, "chromium")
    sys.path.insert(0, str(ROOT))
    from demo.gpu import GPU, GPUS, GpuDemo

    with tempfile.TemporaryDirectory(prefix="gpus-", ignore_cleanup_errors=True) as scratch:
        node = GpuDemo(Path(scratch))
        address = free_address()
        try:
            node.build()
            node.has()
            node.kubelet.start()
            node.start_plugin(f"--http-address={address}")
            node.expect(GPUS)
            for name, (container, count) in PODS.items():
                node.run_pod(Pod.of(name, **{container: {GPU: count}}))
            node.has("gpu 5 state=lost", "event 1 xid gpu=5 code=79")
            node.expect([one for one in GPUS if one != GPUS[5]], {GPUS[5]})
            wait_for(f"http://{address}/", *PODS, "1 unhealthy")
            page = read(f"http://{address}/")
        finally:
            node.close()
        # In a pod the machine has the pod's name.
        machine = f"<h1>{socket.gethostname()}</h1>".encode()
        own = page.replace(machine, b"<h1>gpu-device-plugin-x7k2p</h1>")
        own = re.sub(rb"<script>.*</script>", b"", own, flags=re.DOTALL)  # it would ask again
        Path(scratch, "page.html").write_bytes(own)
        frames = Path(scratch, "frames.html")
        text = FRAMES.format(gap=GAP, height=HEIGHT, wide=WIDE, narrow=NARROW)
        frames.write_text(text, encoding="utf-8")
        draw(frames, (WIDE + GAP + NARROW, HEIGHT), PAGE, checksum("page"))


def wait_for(address: str, *words: str) -> None:
    """Wait until an address serves a text with all of ``words``."""
    limit = time.monotonic() + PATIENCE
    while missing := [word for word in words if word.encode() not in read(address)]:
        if time.monotonic() > limit:
            raise SystemExit(f"drawings.py: {address} does not say {', '.join(missing)}")
        time.sleep(0.2)


# The dashboard


class Plugin(dp.Plugin):
    """Some devices, of which some fail and recover."""

    count = 0
    trouble = "it is too hot"

    def __init__(self) -> None:
        self.failed: set[int] = set()

    def discover(self) -> Iterator[dp.Device]:
        """Yield all devices."""
        kind = self.resource.rpartition("/")[2]
        for number in range(self.count):
            if number in self.failed:
                yield dp.Device(f"{kind}{number}", health=dp.Health.unhealthy(self.trouble))
            else:
                yield dp.Device(f"{kind}{number}")


class GPU(Plugin):
    """The GPUs of a node."""

    resource, count = "example.com/gpu", 8
    trouble = "XID 79: GPU has fallen off the bus"


class Camera(Plugin):
    """The cameras of a node."""

    resource, count = "example.com/camera", 4


STARTS, ENDS, FAILS = 0.25, 0.4, 0.44
"""Below which of random numbers from 0 to 1 a pod comes, one goes, or a device fails."""
LAST: Final = 15.0
"""Seconds before the end from which nothing happens but that a GPU is broken."""
JOBS: Final = {GPU: "train", Camera: "door"}
"""What pods with these devices are called."""


@dataclass
class Running:
    """A plugin, its kubelet, and the pods that hold its devices."""

    plugin: Plugin
    kubelet: SimulatedKubelet
    pods: list[Pod] = field(default_factory=list)

    def step(self, chance: random.Random, number: int) -> None:
        """Have a pod come or go, or a device fail or recover, or nothing."""
        happens = chance.random()
        if happens < STARTS and len(self.pods) < self.plugin.count // 2:
            pod = Pod.of(f"{JOBS[type(self.plugin)]}-{number}", main={self.plugin.resource: 1})
            if self.kubelet.run(pod):
                self.pods.append(pod)
        elif happens < ENDS and self.pods:
            self.kubelet.delete(self.pods.pop(chance.randrange(len(self.pods))))
        elif happens < FAILS:
            failed = self.plugin.failed
            self.plugin.failed = set() if failed else {chance.randrange(self.plugin.count)}


@contextmanager
def fleet(nodes: Sequence[str]) -> Iterator[tuple[dict[str, list[int]], list[Running]]]:
    """Run both plugins on each node; yield their ports by node, and themselves."""
    ports: dict[str, list[int]] = {}
    made = []
    with ExitStack() as stack:
        for name in nodes:
            root = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="dp")))
            kubelet = stack.enter_context(Kubelet(root))
            for plugin in (GPU(), Camera()):
                node = stack.enter_context(
                    kubelet.running(
                        plugin, http_address="127.0.0.1:0", discovery_interval=timedelta(seconds=1)
                    )
                )
                node.wait_for(plugin.resource, [device.id for device in plugin.discover()])
                ports.setdefault(name, []).append(node.host.http_port)
                made.append(Running(plugin, kubelet.simulated))
        yield ports, made


@contextmanager
def prometheus(ports: dict[str, list[int]], folder: Path) -> Iterator[str]:
    """Run a Prometheus that scrapes plugins, and yield its address."""
    address = free_address()
    targets = [
        {"targets": [f"127.0.0.1:{port}" for port in found], "labels": {"node": name}}
        for name, found in ports.items()
    ]
    scrape = {"job_name": "device-plugin", "static_configs": targets}
    config = {"global": {"scrape_interval": "1s"}, "scrape_configs": [scrape]}
    (folder / "prometheus.yml").write_text(json.dumps(config), encoding="utf-8")
    command = [program(["prometheus"], "prometheus"), "--config.file=prometheus.yml"]
    process = subprocess.Popen(
        [*command, "--storage.tsdb.path=data", f"--web.listen-address={address}"],
        cwd=folder,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        read(f"http://{address}/-/healthy")
        yield f"http://{address}"
    finally:
        process.kill()
        process.wait()


def draw_dashboard(seconds: float) -> None:
    """Draw the dashboard, after ``seconds`` of pods that come and go and devices that fail."""
    program(BROWSERS, "chromium")
    chance = random.Random(7)  # noqa: S311
    with tempfile.TemporaryDirectory(prefix="dashboard-", ignore_cleanup_errors=True) as scratch:
        folder = Path(scratch)
        with fleet(["n1", "n2", "n3"]) as (ports, plugins), prometheus(ports, folder) as url:
            end = time.monotonic() + seconds
            for number in itertools.count():
                if (left := end - time.monotonic()) < 0:
                    break
                if left > LAST:
                    plugins[number % len(plugins)].step(chance, number)
                else:
                    plugins[0].plugin.failed = {3}
                time.sleep(0.5)
            words: list[str | Path] = [
                sys.executable,
                ROOT / "demo/dashboards/draw.py",
                url,
                str(seconds),
            ]
            done = subprocess.run(words, capture_output=True, text=True, check=True)
        page = folder / "dashboard.html"
        page.write_text(done.stdout, encoding="utf-8")
        draw(page, DASHBOARD_SIZE, DASHBOARD, checksum("dashboard"))


def main(argv: Sequence[str]) -> None:
    """See the module."""
    match argv:
        case ["page"]:
            draw_page()
        case ["dashboard"]:
            draw_dashboard(120)
        case ["dashboard", seconds]:
            draw_dashboard(float(seconds))
        case _:
            raise SystemExit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])
