"""Compare what plugins need with ``counts.json``, in counts that a busy machine does not change.

    make bench                 name what grew, and by how much; 1 if something did
    make bench ARGS=--write    renew the baseline

Every plugin runs as it is installed, on the hardware that its end to end tests pretend. Modules are
compared on the minor version of Python that the baseline was made with, instructions on the build.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final
from urllib.request import urlopen

from typing_extensions import override

from agents.agent_node import ALL, agent_node
from deviceplugin_testing.conformance._process import Plugin, holdings
from deviceplugin_testing.conformance._subject import Limits, Subject, free_port, scratch
from deviceplugin_testing.conformance.dra._node import DraNode
from deviceplugin_testing.simulator import Observer, SimulatedKubelet

BASELINE: Final = Path(__file__).with_name("counts.json")
RENEW: Final = "make bench ARGS=--write"
TOLERANCE: Final = {"instructions": 0.01, "modules": 0.005}
"""The part by which a kind of count may grow.

Callgrind's vary with the processor's libraries, and some modules are loaded a moment later.
"""
COUNT_SYNCS: Final = """
import os
def counted(sync):
    def call(descriptor):
        with open(os.environ["SYNCS"], "ab") as count:
            count.write(b".")
        return sync(descriptor)
    return call
os.fsync, os.fdatasync = counted(os.fsync), counted(os.fdatasync)
"""

_STILL: Final = 20

Counts = dict[str, int]


class Messages(Observer):
    """The bytes of a registration and of a list, as the kubelet got them."""

    def __init__(self) -> None:
        self.counts: Counts = {}

    @override
    def registering(self, request: Any, path: str) -> Callable[[str], None]:
        self.counts["bytes of a registration"] = request.ByteSize() - len(Path(path).name)
        return lambda _refusal: None

    @override
    def listed(self, resource: str, devices: Sequence[Any]) -> None:
        size = sum(one.ByteSize() + 2 for one in devices)  # each has a tag and a length
        self.counts["bytes of a list of 8 devices"] = size


def installed(name: str) -> str:
    """Return the program of a plugin."""
    return str(Path(sys.executable).with_name(f"{name}-device-plugin"))


def run_of(name: str) -> Counts:
    """Return the counts of one idle plugin that has a list of devices, with HTTP as in its pod."""
    with scratch("dpn-") as folder:
        made = agent_node(folder / "node", folder, [name], files=8)
        section = json.loads(made.config.read_text())
        made.config.write_text(json.dumps({**made.of_all, **section[name]}))
        messages, output, port = Messages(), folder / "output", free_port()
        with SimulatedKubelet(folder / "kubelet", observer=messages) as kubelet:
            plugin = Plugin(
                [installed(name), f"--config={made.config}"],
                placeholders={
                    "plugin_dir": str(kubelet.plugin_dir),
                    "pod_resources_socket": str(kubelet.pod_resources_socket),
                    "http_address": f"127.0.0.1:{port}",
                    "state_file": str(folder / "state"),
                },
                output=output,
                environment={**made.environment, "PYTHONPROFILEIMPORTTIME": "1"},
            )
            try:
                kubelet.wait(lambda: any(map(kubelet.lists_received, kubelet.registered)))
                kubelet.wait(lambda: kubelet.metrics.pod_resources_endpoint_requests["list"])
                ask(port, "healthz")
                idle = settled(plugin.pid, output)
                counts = {f"modules, {name}": idle.pop("modules")}
                if name == "gopher":
                    ask(port, "metrics")
                    scraped = settled(plugin.pid, output)["modules"]
                    counts |= {**idle, **messages.counts, "modules, gopher, scraped": scraped}
            finally:
                plugin.kill()
    return counts


def ask(port: int, path: str) -> None:
    """Read a page of the plugin."""
    with urlopen(f"http://127.0.0.1:{port}/{path}") as answer:
        answer.read()


def settled(pid: int, output: Path) -> Counts:
    """Return modules, threads and descriptors, once they have not changed for 20 looks.

    The pool of grpc's core does not count among the threads: it grows with load.
    """
    looks: list[Counts] = []
    while len(looks) < _STILL or any(one != looks[-1] for one in looks[-_STILL:]):
        names = [path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/comm")]
        found = {
            "modules": len(re.findall(r"import time: +\d", output.read_text())),
            "threads": sum("event_engine" not in one for one in names),
            "descriptors": holdings(pid).descriptors,
        }
        looks.append(found)
        time.sleep(0.1)
        if len(looks) > 50 * _STILL:
            sys.exit(f"build/measures/counts.py: the plugin does not become idle: {found}")
    return looks[-1]


@contextmanager
def driver(syncs: Path) -> Iterator[DraNode]:
    """Run gopher as a DRA driver of 8 devices; the file ``syncs`` gets a byte for each of its."""
    (syncs.parent / "sitecustomize.py").write_text(COUNT_SYNCS)
    variables = ["env", f"PYTHONPATH={syncs.parent}", f"SYNCS={syncs}"]
    command = [*variables, installed("gopher"), "--protocol=dra", "--directory={devices_dir}"]
    subject = Subject(command=command)
    with subject.place() as place:
        node = DraNode(subject, place, Limits(start=60, within=60), 0, threading.Event())
        try:
            node.start()
            node.launch()
            if problem := node.wait_up():
                sys.exit(f"build/measures/counts.py: {problem}")
            yield node
        finally:
            node.close()


def claims() -> Counts:
    """Return what claims cost: requests to the API server, syncs, and the bytes of a slice."""
    with scratch("dpn-") as folder, driver(folder / "syncs") as node:
        (folder / "syncs").write_bytes(b"")
        counts = {"bytes of a slice of 8 devices": len(json.dumps(node.slices[0]["spec"]))}
        first, *others = [node.claim(one) for one in node.devices]
        for what, some in (("1 claim", [first]), ("7 claims at once", others)):
            for call in (node.prepare, node.unprepare):
                requests, synced = len(asked(node)), (folder / "syncs").stat().st_size
                call(*some)
                if call == node.prepare:
                    node.require(partial(reported, node, some), "no status of claims")
                done = f"of {what}, {'un' * (call == node.unprepare)}prepared"
                counts[f"requests {done}"] = len(asked(node)) - requests
                counts[f"syncs {done}"] = (folder / "syncs").stat().st_size - synced
    return counts


def asked(node: DraNode) -> list[Any]:
    """Return what the driver asked the API server about claims."""
    return [one for one in node.cluster.requests if one.resource.startswith("resourceclaims")]


def reported(node: DraNode, claims: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether the driver has written the status of claims."""
    names = [one["metadata"]["name"] for one in claims]
    found = [one for one in node.cluster.list("ResourceClaim") if one["metadata"]["name"] in names]
    return all("devices" in one["status"] for one in found)


def instructions() -> Counts:
    """Return the millions of instructions of a plugin that prints its devices and ends."""
    if shutil.which("valgrind") is None:
        print("skipped: instructions: valgrind is not installed")
        return {}
    with scratch("dpn-") as folder:
        tool = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={folder}/out"]
        command = [*tool, sys.executable, installed("gopher"), "--once", f"--directory={folder}"]
        environment = {**os.environ, "PYTHONHASHSEED": "0"}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return {"instructions, million": int(done.stderr.split("Collected : ")[1].split()[0]) // 10**6}


def counted() -> Counts:
    """Return all counts, without those for which a program is missing, which is said."""
    found: Counts = {}
    for name in ALL:
        if name == "gpu" and shutil.which("cc") is None:
            print("skipped: modules, gpu: there is no C compiler for the driver that is pretended")
        else:
            found |= run_of(name)
    return found | claims() | instructions()


def comparable(counts: Counts, python: str) -> Counts:
    """Return the counts without those that another Python than this one has otherwise."""
    kinds = {"modules": python.split(".")[:2] == sys.version.split(".")[:2]}
    kinds["instructions"] = python == sys.version
    for kind, is_same in kinds.items():
        if not is_same:
            print(f"skipped: {kind}: the baseline has those of Python {python}")
    return {name: n for name, n in counts.items() if kinds.get(name.partition(",")[0], True)}


def differences(before: Mapping[str, int], now: Mapping[str, int]) -> tuple[list[str], list[str]]:
    """Return what grew, and what fell or is new."""
    grew, others = [], []
    for name, count in now.items():
        then = before.get(name)
        if then is None or count < then:
            others.append(f"{name}: {then} before, {count} now")
        elif count > then * (1 + TOLERANCE.get(name.partition(",")[0], 0)):
            grew.append(f"{name}: {then} before, {count} now: {count - then} more")
    return grew, others


def main(words: Sequence[str]) -> int:
    """Compare, or write with ``--write``; return 1 if something grew."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--write", action="store_true", help="write the baseline")
    options = parser.parse_args(words)
    os.environ.pop("PYTHONPATH", None)  # of this program: plugins would look there for each module
    now = counted()
    if options.write:
        BASELINE.write_text(json.dumps({"python": sys.version, "counts": now}, indent=1) + "\n")
        return 0
    saved = json.loads(BASELINE.read_text())
    now = comparable(now, saved["python"])
    grew, others = differences(saved["counts"], now)
    if lost := sorted(saved["counts"].keys() - now.keys()):
        print(f"not counted now: {', '.join(lost)}")
    print("\n".join([*others, *grew]) or "as in the baseline")
    if others and not grew:
        print(f"renew the baseline, so that it cannot grow back unnoticed: {RENEW}")
    if grew:
        print(f"make it as small as before, or say in the commit what it buys, and: {RENEW}")
    return 1 if grew else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
