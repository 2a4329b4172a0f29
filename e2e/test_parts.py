"""Parts that are made for claims on a real cluster under faults, of pretended hardware."""

import json
import random
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from time import monotonic
from typing import Any, Final

import pytest

from gpu.fake_nvml import FakeGpu
from homes.case import cases
from homes.chaos.run import Chaos
from homes.chaos.seen import allocated
from homes.cluster.home import Cluster
from homes.cluster.manifests import CASE
from homes.cluster.session import HARDWARE, Session
from homes.cluster.switched import Switched
from homes.cluster.workload import is_running
from homes.home import Plugin

NODE: Final = "/proc/1/root"
"""The node's files, as the witness sees them."""
PLUGINS: Final = "/var/lib/kubelet/plugins"


@dataclass(frozen=True)
class Divided:
    """A plugin whose devices are wholes, and parts that can be made of them."""

    plugin: Plugin
    driver: str
    hardware: str
    """The file with what is made: on the node, or below the hardware that it pretends to have."""
    read: Callable[[str], Mapping[str, str]]
    """Returns the identity of each part in that file, by the part's id."""
    all: int
    """Devices of both kinds."""
    profiles: Mapping[str, str]
    """The expression of CEL that selects one, of attributes that are written ``{of}``."""


def simulated_parts(text: str) -> Mapping[str, str]:
    return {key: one["identity"] for key, one in json.loads(text)["parts"].items()}


def mig_devices(text: str) -> Mapping[str, str]:
    """Read what the fake driver keeps: a line for each change."""
    there: dict[tuple[str, str], tuple[str, str]] = {}
    for number, line in enumerate(text.splitlines()):
        word, slot, *keys = line.split()
        one = dict(key.split("=", 1) for key in keys if "=" in key)
        if word == "gone" and "ci" not in one:
            there.pop((slot, one["gi"]), None)
        elif word in {"instance", "mig"}:  # the first is a part that is half made
            uuid = FakeGpu(int(slot)).uuid
            there[slot, one["gi"]] = (f"{uuid}/{one['profile']}@{one['start']}", str(number))
    return dict(there.values())


SIMULATED: Final = Divided(
    replace(
        cases()["simulated"].plugin,
        components=("dra",),
        environment={},
        config="devices: /etc/device-plugin/devices.yaml\nprotocol: dra\n",
        beside={
            "devices.yaml": """
random: {every: 1s, lasting: 6s, faults: [fail, fail, slow, stick, stick, unhealthy]}
timeline: [{at: 1m, do: break, devices: "card-*/*"}]
resources:
  example.com/simple-device:
    count: 2
    id: card-{index}
    parts:
      counters: {memory: 8, compute: 7}
      profiles:
        1g: {consumes: {memory: 1, compute: 1}}
        3g: {consumes: {memory: 4, compute: 3}, placements: [0, 4], size: 4}
        fast: {consumes: {memory: 2}}
"""
        },
    ),
    "simple-device.example.com",
    "/run/deviceplugin-simulated/parts.json",
    simulated_parts,
    28,
    {one: f'{{of}}.profile == "{one}"' for one in ("1g", "3g", "fast", "whole")},
)
_PART: Final = '{of}.resource == "nvidia.com/gpu/part"'
GPU: Final = Divided(
    replace(
        cases()["gpu"].plugin,
        components=("dra", "gpu-mig"),
        environment={"DP_MIG_ON_DEMAND": "switch", "DP_PROTOCOL": "dra"},
    ),
    "nvidia-gpu.device-plugins",
    "nvml/node.fleet.made",
    mig_devices,
    52,
    {
        **{
            one: f'{_PART} && {{of}}.profile == "{one}"'
            for one in ("1g.10gb", "1g.20gb", "3g.40gb")
        },
        "whole": '{of}.resource == "nvidia.com/gpu"',
    },
)


class Parts:
    """What claims have of the driver's devices, beside what is made on the node."""

    def __init__(self, divided: Divided, cluster: Cluster, chaos: Chaos) -> None:
        self.divided, self.driver = divided, divided.driver
        self.cluster, self.here, self.witness = cluster, cluster.here, chaos.witness
        self.name = f"{cluster.here.namespace}-part"
        self.here.wait(lambda: len(self.devices()) == divided.all, "slices with all parts")
        self.amounts = sum(map(amounts, self._of_slices("sharedCounters")), Counter[str]())
        self.offered = {one["attributes"]["id"]["string"]: one for one in self.devices()}
        self.seen: set[tuple[str, str]] = set()
        """The profile and identity of each part, and the pod of each whole."""

    def _of_slices(self, key: str) -> list[dict[str, Any]]:
        found = self.cluster.kubectl.get("resourceslices")["items"]
        specs = (one["spec"] for one in found if one["spec"]["driver"] == self.driver)
        return [one for spec in specs for one in spec.get(key, ())]

    def devices(self) -> list[dict[str, Any]]:
        """Return the devices that pods may get now."""
        return [one for one in self._of_slices("devices") if "taints" not in one]

    def templates(self) -> None:
        """Have a class of all devices, and a template for each profile."""

        def make(kind: str, name: str, spec: Any) -> None:
            made = {"apiVersion": "resource.k8s.io/v1", "kind": kind, "metadata": {"name": name}}
            text = json.dumps({**made, "spec": spec})
            self.here.kubectl.own("apply", "--filename=-", stdin=text)

        def by(expression: str) -> dict[str, Any]:
            return {"selectors": [{"cel": {"expression": expression}}]}

        make("DeviceClass", self.name, by(f'device.driver == "{self.driver}"'))
        of = f'device.attributes["{self.driver}"]'
        for profile, expression in self.divided.profiles.items():
            own = by(expression.format(of=of))
            request = {"name": "one", "exactly": {"deviceClassName": self.name, **own}}
            claim = {"spec": {"devices": {"requests": [request]}}}
            make("ResourceClaimTemplate", profile, claim)

    def made(self) -> Mapping[str, str]:
        """Return the identities of the parts on the node, by id."""
        file = self.here.folder / HARDWARE / self.divided.hardware
        text = self.witness.read(f"{NODE}{file}")
        return self.divided.read(text) if text else {}

    def held(self) -> set[tuple[str, str]]:
        """Return the id of each device that a running pod has, after the pod's UID."""
        kubectl = self.here.kubectl
        # Claims first: the container of a pod that runs then has what its claim has.
        claims, pods = kubectl.get_own("resourceclaims")["items"], kubectl.pods(CASE)
        running = {one["metadata"]["uid"] for one in pods if is_running(one)}
        ids = {one["name"]: device_id for device_id, one in self.offered.items()}
        return {
            (user["uid"], ids[device["device"]])
            for claim in claims
            for device in allocated(claim, self.driver)
            for user in claim["status"].get("reservedFor", ())
            if user["uid"] in running
        }

    def check(self) -> None:
        """Fail if a running pod has no part, or another one's, or if more is made than there is."""
        notes = self.witness.read("/locks/violations")
        assert not notes, notes
        before, made = self.held(), self.made()
        held = [device_id for _, device_id in before & self.held()]
        wholes = {one for one in held if self.profile(one) == "whole"}
        assert len(held) == len({*held}), f"a device twice: {held}"
        assert {*held} - wholes <= {*made}, f"running with {held}, there are {[*made]}"
        taken = Counter[str]()
        for one in {*made} | wholes:
            for each in self.offered[one]["consumesCounters"]:
                taken += amounts(each)
        assert taken <= self.amounts, f"{taken - self.amounts} too much: {[*made]}, {wholes}"
        self.seen |= {(self.profile(key), identity) for key, identity in made.items()}
        self.seen |= {("whole", uid) for uid, key in before if self.profile(key) == "whole"}

    def profile(self, device_id: str) -> str:
        return "".join(self.offered[device_id]["attributes"].get("profile", {"": "whole"}).values())

    def left(self) -> list[Any]:
        """Return what is there only for claims: none of it is when these have ended."""
        claims = self.here.kubectl.get_own("resourceclaims")["items"]
        listed = "import os, sys; print(*(f for f in os.listdir(sys.argv[1]) if sys.argv[2] in f))"
        files = self.here.execute("python3", "-c", listed, "/var/run/cdi", self.driver)
        return [*self.made(), *claims, *files.split()]


def amounts(counters: Mapping[str, Any]) -> Counter[str]:
    """Return what a set of counters has, or what a device takes of one."""
    of = counters.get("counterSet") or counters["name"]
    return Counter({f"{of} {key}": int(n["value"]) for key, n in counters["counters"].items()})


@pytest.mark.parametrize(
    "divided",
    [
        pytest.param(SIMULATED, marks=pytest.mark.simulated, id="simulated"),
        pytest.param(GPU, marks=pytest.mark.gpu, id="gpu"),
    ],
)
@pytest.mark.timeout(0)  # as long as one likes
def test_parts_come_and_go_under_faults_and_none_is_left(
    divided: Divided, cluster: Cluster, session: Session, pytestconfig: pytest.Config
) -> None:
    for option in ("chaos", "restart_kubelet"):
        cluster.need(option)
    options, say = session.options, session.progress.say
    cluster.need_cdi()
    Switched(cluster).need_device_class()  # Kubernetes 1.36
    cluster.install(divided.plugin)
    chaos = Chaos(cluster, cluster, seed := pytestconfig.getoption("--seed"), options, say)
    chance, load = random.Random(seed), chaos.load
    chaos.watch(60 * options.chaos)
    parts = Parts(divided, cluster, chaos)
    profiles = [*divided.profiles, next(iter(divided.profiles))]  # more of the first
    commands = dict(one.split("=", 1) for one in options.node_fault)

    def run(name: str) -> None:
        for phase in ("begin", "end"):
            cluster.run_whole(commands[name], PHASE=phase)
        cluster.here.wait(chaos.witness.is_there, "the witness")

    sockets = f"{NODE}{PLUGINS}/{divided.plugin.name}-device-plugin/{divided.driver}"
    faults = {"kill": chaos.kill, "pod": chaos.pod, "kubelet": chaos.kubelet} | {
        "socket": lambda: chaos.witness.delete_sockets(sockets),
        **{name: partial(run, name) for name in commands},
    }
    try:
        parts.templates()
        end, made = monotonic() + 60 * options.chaos, Counter[str]()
        while monotonic() < end:
            for _ in range(8):
                load.claiming(*chance.sample(profiles, chance.choice((1, 1, 2))))
                parts.check()
            name = chance.choice([*faults])
            faults[name]()
            made[name] += 1
            parts.check()
        seen = Counter(profile for profile, _ in parts.seen)
        say(f"seed {seed}: {load.number} pods, seen {dict(seen)}; faults {dict(made)}")
        cluster.here.kubectl.own("delete", "pods", f"--selector={CASE}")
        cluster.here.wait_ready()
        cluster.here.wait(lambda: not parts.left(), "nothing to be left")
        parts.check()
        cluster.here.wait(lambda: len(parts.devices()) == divided.all, "all parts to be offered")
        assert {*divided.profiles} == {*seen}
    finally:  # pods do not end without the driver of their claims
        cluster.here.kubectl.own("delete", "pods", f"--selector={CASE}", check=False)
        cluster.kubectl("delete", "deviceclass", parts.name, "--ignore-not-found")
