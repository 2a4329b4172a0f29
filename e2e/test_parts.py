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
random: {every: 2s, lasting: 6s, faults: [slow, fail, stick, unhealthy]}
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
        self.cluster, self.chaos = cluster, chaos
        self.here, self.name = cluster.here, f"{cluster.here.namespace}-part"
        self.here.wait(lambda: len(self.devices()) == ALL, "slices with all parts")
        found = self.cluster.kubectl.get("resourceslices")["items"]
        sets = [one for each in found for one in each["spec"].get("sharedCounters", ())]
        self.amounts = Counter({key: n for one in sets for key, n in amounts(one).items()})
        self.offered = self.devices()
        self.ids = {one["attributes"]["id"]["string"]: key for key, one in self.offered.items()}
        self.most = 0
        """How many parts were made at the same time."""
        self.seen: set[tuple[str, str]] = set()
        """Each part that was made, or whole that a claim had, with what tells it from others."""

    def devices(self) -> dict[str, Any]:
        """Return the devices that pods may get now, by their names."""
        found = self.cluster.kubectl.get("resourceslices")["items"]
        of_us = (one["spec"] for one in found if one["spec"]["driver"] == DRIVER)
        devices = (device for spec in of_us for device in spec.get("devices", ()))
        return {one["name"]: one for one in devices if "taints" not in one}

    def templates(self) -> None:
        """Have a class of all devices, and a template for each profile."""
        version, kind = "resource.k8s.io/v1", "ResourceClaimTemplate"
        selectors = [{"cel": {"expression": f'device.driver == "{DRIVER}"'}}]
        metadata, spec = {"name": self.name}, {"selectors": selectors}
        made = {"apiVersion": version, "kind": "DeviceClass", "metadata": metadata, "spec": spec}
        self.here.kubectl.apply(made)
        for profile in PROFILES:
            cel = {"expression": f'device.attributes["{DRIVER}"].profile == "{profile}"'}
            exactly = {"deviceClassName": self.name, "selectors": [{"cel": cel}]}
            claim = {"spec": {"devices": {"requests": [{"name": "one", "exactly": exactly}]}}}
            metadata = {"name": profile, "namespace": self.here.namespace}
            template = {"apiVersion": version, "kind": kind, "metadata": metadata, "spec": claim}
            self.here.kubectl.apply(template)

    def made(self) -> dict[str, Any]:
        """Return the parts on the node, by id."""
        text = self.chaos.witness.read(f"{NODE}/run/deviceplugin-simulated/parts.json")
        return dict(json.loads(text)["parts"]) if text else {}

    def held(self) -> set[tuple[str, str]]:
        """Return each device that a running pod has, after the pod's UID."""
        kubectl = self.here.kubectl
        # Claims first: the container of a pod that runs then has what its claim has.
        claims, pods = kubectl.get_own("resourceclaims")["items"], kubectl.pods(CASE)
        running = {one["metadata"]["uid"] for one in pods if is_running(one)}
        return {
            (user["uid"], device["device"])
            for claim in claims
            for device in allocated(claim, DRIVER)
            for user in claim["status"].get("reservedFor", ())
            if user["uid"] in running
        }

    def check(self) -> None:
        """Fail if a running pod has no part, or another one's, or if more is made than there is."""
        notes = self.chaos.witness.read("/locks/violations")
        assert not notes, notes
        before, made = self.held(), self.made()
        held = Counter(name for _, name in before & self.held())
        assert not (twice := [name for name, count in held.items() if count > 1]), twice
        names = {*held, *(self.ids[one] for one in made)}
        lost = {one for one, name in self.ids.items() if name in held and "/" in one} - {*made}
        assert not lost, f"{lost} of {made}"
        taken: Counter[tuple[str, str]] = Counter()
        for name in names:
            for one in self.offered[name]["consumesCounters"]:
                taken.update(amounts({**one, "name": one["counterSet"]}))
        assert taken <= self.amounts, f"{taken - self.amounts} too much: {made} and {held}"
        self.most = max(self.most, len(made))
        self.seen |= {(self.ids[one], each["identity"]) for one, each in made.items()}
        wholes = {name for one, name in self.ids.items() if "/" not in one}
        self.seen |= {(name, uid) for uid, name in before if name in wholes}

    def profiles(self) -> dict[str, int]:
        """Return how many there were of each profile."""
        of = {name: one["attributes"]["profile"]["string"] for name, one in self.offered.items()}
        return Counter(of[name] for name, _ in self.seen)

    def left(self) -> dict[str, Any]:
        """Return what is there only for claims: none of it is when these have ended."""
        claims = self.here.kubectl.get_own("resourceclaims")["items"]
        listed = "import os, sys; print(*(f for f in os.listdir(sys.argv[1]) if sys.argv[2] in f))"
        files = self.here.execute("python3", "-c", listed, "/var/run/cdi", DRIVER)
        return {"parts": self.made(), "claims": claims, "files": files.split()}


def amounts(counters: Mapping[str, Any]) -> dict[tuple[str, str], int]:
    return {(counters["name"], key): int(n["value"]) for key, n in counters["counters"].items()}


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
        text = f"seed {seed}: {load.number} pods, up to {parts.most} parts at once"
        say(f"{text}, {dict(parts.profiles())} in all; faults {dict(made)}")
        cluster.here.kubectl.own("delete", "pods", f"--selector={CASE}")
        nothing: dict[str, Any] = {"parts": {}, "claims": [], "files": []}
        cluster.here.wait_ready()
        cluster.here.wait(lambda: parts.left() == nothing, "nothing to be left")
        parts.check()
        cluster.here.wait(lambda: parts.devices().keys() == parts.offered.keys(), "all parts")
        assert {*PROFILES} == {*parts.profiles()}
    finally:  # pods do not end without the driver of their claims
        cluster.here.kubectl.own("delete", "pods", f"--selector={CASE}", check=False)
        cluster.kubectl("delete", "deviceclass", parts.name, "--ignore-not-found")
