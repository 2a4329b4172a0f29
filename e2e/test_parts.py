"""Parts of simulated devices that are made for claims on a real cluster, under faults."""

import json
import random
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from time import monotonic
from typing import Any, Final

import pytest

from homes.case import cases
from homes.chaos.run import Chaos
from homes.chaos.seen import allocated
from homes.cluster.home import Cluster
from homes.cluster.manifests import CASE
from homes.cluster.session import Session
from homes.cluster.switched import Switched
from homes.cluster.workload import is_running

DRIVER: Final = "simple-device.example.com"
FOLDER: Final = f"/var/lib/kubelet/plugins/simulated-device-plugin/{DRIVER}"
NODE: Final = "/proc/1/root"
"""The node's files, as the witness sees them."""
ALL: Final = 28
"""Wholes, and parts that can be made of them."""
PROFILES: Final = ("1g", "1g", "3g", "fast", "whole")
SIMULATED: Final = replace(
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
)


class Parts:
    """What claims have of the driver's devices, beside what is made on the node."""

    def __init__(self, cluster: Cluster, chaos: Chaos) -> None:
        self.cluster, self.here, self.witness = cluster, cluster.here, chaos.witness
        self.name = f"{cluster.here.namespace}-part"
        self.here.wait(lambda: len(self.devices()) == ALL, "slices with all parts")
        self.amounts = sum(map(amounts, self._of_slices("sharedCounters")), Counter[str]())
        self.offered = {one["attributes"]["id"]["string"]: one for one in self.devices()}
        self.seen: set[tuple[str, str]] = set()
        """The profile and identity of each part, and the pod of each whole."""

    def _of_slices(self, key: str) -> list[dict[str, Any]]:
        found = self.cluster.kubectl.get("resourceslices")["items"]
        specs = (one["spec"] for one in found if one["spec"]["driver"] == DRIVER)
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

        make("DeviceClass", self.name, by(f'device.driver == "{DRIVER}"'))
        for profile in PROFILES:
            own = by(f'device.attributes["{DRIVER}"].profile == "{profile}"')
            request = {"name": "one", "exactly": {"deviceClassName": self.name, **own}}
            claim = {"spec": {"devices": {"requests": [request]}}}
            make("ResourceClaimTemplate", profile, claim)

    def made(self) -> dict[str, Any]:
        """Return the parts on the node, by id."""
        text = self.witness.read(f"{NODE}/run/deviceplugin-simulated/parts.json")
        return dict(json.loads(text)["parts"]) if text else {}

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
            for device in allocated(claim, DRIVER)
            for user in claim["status"].get("reservedFor", ())
            if user["uid"] in running
        }

    def check(self) -> None:
        """Fail if a running pod has no part, or another one's, or if more is made than there is."""
        notes = self.witness.read("/locks/violations")
        assert not notes, notes
        before, made = self.held(), self.made()
        held = [device_id for _, device_id in before & self.held()]
        wholes = {one for one in held if "/" not in one}
        assert len(held) == len({*held}), f"a device twice: {held}"
        assert {*held} - wholes <= {*made}, f"running with {held}, there are {[*made]}"
        taken = Counter[str]()
        for one in {*made} | wholes:
            for each in self.offered[one]["consumesCounters"]:
                taken += amounts(each)
        assert taken <= self.amounts, f"{taken - self.amounts} too much: {[*made]}, {wholes}"
        profiles = {
            key: one["attributes"]["profile"]["string"] for key, one in self.offered.items()
        }
        self.seen |= {(profiles[key], one["identity"]) for key, one in made.items()}
        self.seen |= {("whole", uid) for uid, device_id in before if "/" not in device_id}

    def left(self) -> list[Any]:
        """Return what is there only for claims: none of it is when these have ended."""
        claims = self.here.kubectl.get_own("resourceclaims")["items"]
        listed = "import os, sys; print(*(f for f in os.listdir(sys.argv[1]) if sys.argv[2] in f))"
        files = self.here.execute("python3", "-c", listed, "/var/run/cdi", DRIVER)
        return [*self.made(), *claims, *files.split()]


def amounts(counters: Mapping[str, Any]) -> Counter[str]:
    """Return what a set of counters has, or what a device takes of one."""
    of = counters.get("counterSet") or counters["name"]
    return Counter({f"{of} {key}": int(n["value"]) for key, n in counters["counters"].items()})


@pytest.mark.simulated
@pytest.mark.timeout(0)  # as long as one likes
def test_parts_come_and_go_under_faults_and_none_is_left(
    cluster: Cluster, session: Session, pytestconfig: pytest.Config
) -> None:
    for option in ("chaos", "restart_kubelet"):
        cluster.need(option)
    options, say = session.options, session.progress.say
    cluster.need_cdi()
    Switched(cluster).need_device_class()  # Kubernetes 1.36
    cluster.install(SIMULATED)
    chaos = Chaos(cluster, cluster, seed := pytestconfig.getoption("--seed"), options, say)
    chance, load = random.Random(seed), chaos.load
    chaos.watch(60 * options.chaos)
    parts = Parts(cluster, chaos)
    commands = dict(one.split("=", 1) for one in options.node_fault)

    def run(name: str) -> None:
        for phase in ("begin", "end"):
            cluster.run_whole(commands[name], PHASE=phase)
        cluster.here.wait(chaos.witness.is_there, "the witness")

    faults = {"kill": chaos.kill, "pod": chaos.pod, "kubelet": chaos.kubelet} | {
        "socket": lambda: chaos.witness.delete_sockets(f"{NODE}{FOLDER}"),
        **{name: partial(run, name) for name in commands},
    }
    try:
        parts.templates()
        end, made = monotonic() + 60 * options.chaos, Counter[str]()
        while monotonic() < end:
            for _ in range(8):
                load.claiming(*chance.sample(PROFILES, chance.choice((1, 1, 2))))
                parts.check()
            name = chance.choice([*faults])
            faults[name]()
            made[name] += 1
            parts.check()
        profiles = Counter(profile for profile, _ in parts.seen)
        say(f"seed {seed}: {load.number} pods, seen {dict(profiles)}; faults {dict(made)}")
        cluster.here.kubectl.own("delete", "pods", f"--selector={CASE}")
        cluster.here.wait_ready()
        cluster.here.wait(lambda: not parts.left(), "nothing to be left")
        parts.check()
        cluster.here.wait(lambda: len(parts.devices()) == ALL, "all parts to be offered")
        assert profiles
    finally:  # pods do not end without the driver of their claims
        cluster.here.kubectl.own("delete", "pods", f"--selector={CASE}", check=False)
        cluster.kubectl("delete", "deviceclass", parts.name, "--ignore-not-found")
