"""What the comparison at the end of the chaos finds: each kind of difference, in changed copies."""

import json
from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from typing import Any

import pytest

from homes.chaos.comparison import differences
from homes.chaos.seen import GOPHERS, OTHERS, Seen

DRIVER = "gopher.example.com"
SPACE = "e2e-1"
BY_PLUGIN = "by-plugin (PodResources, checkpoint, its own view)"


def pod(name: str, limits: dict[str, dict[str, str]], **status: Any) -> dict[str, Any]:
    containers = [{"name": one, "resources": {"limits": has}} for one, has in limits.items()]
    metadata = {"name": name, "namespace": SPACE, "uid": f"uid-{name}"}
    return {"metadata": metadata, "spec": {"containers": containers}, "status": status}


def saved(name: str, container: str, resource: str, *ids: str) -> dict[str, Any]:
    place = {"PodUID": f"uid-{name}", "ContainerName": container}
    return {**place, "ResourceName": resource, "DeviceIDs": {"-1": [*ids]}}


def view(name: str, container: str, gophers: str = "", others: str = "") -> dict[str, Any]:
    envs = {"Gopher": gophers.split(), "SIMULATED": others.split()}
    both = {"mounts": others.split(), "nodes": others.split()}
    return {"pod": name, "container": container, "envs": envs, **both}


def served(device: str, *pods: str, healthy: bool = True) -> dict[str, Any]:
    holders = [{"namespace": SPACE, "pod": one, "container": "main"} for one in pods]
    return {"id": device, "healthy": healthy, "holders": holders}


def agreeing() -> Seen:
    """``by-plugin`` has g0 and sim-0, and an init container has ended; ``by-claim`` has g1."""
    both = {GOPHERS: "1", OTHERS: "1"}
    first = pod("by-plugin", {"main": both})
    first["spec"]["initContainers"] = [{"name": "first", "resources": {"limits": {GOPHERS: "1"}}}]
    mapping = {"containerName": "main", "requestName": "request-0", "resourceName": GOPHERS}
    second = pod(
        "by-claim",
        {"main": {GOPHERS: "1"}},
        extendedResourceClaimStatus={"requestMappings": [mapping]},
    )
    result = {"driver": DRIVER, "device": "g1", "request": "request-0"}
    ready = [{"type": "Ready", "status": "True"}]
    claim = {
        "metadata": {"name": "claim", "uid": "uid-claim"},
        "status": {
            "allocation": {"devices": {"results": [result]}},
            "reservedFor": [{"uid": "uid-by-claim"}],
            "devices": [{"device": "g1", "conditions": ready}],
        },
    }
    spec = {"devices": [{"name": "1", "containerEdits": {"env": ["Gopher=g1"]}}]}
    node = {
        "checkpoint": [
            saved("by-plugin", "first", GOPHERS, "g0"),
            saved("by-plugin", "main", GOPHERS, "g0"),
            saved("by-plugin", "main", OTHERS, "sim-0"),
            saved("gone", "main", GOPHERS, "g1"),
        ],
        "listed": [
            [SPACE, "by-plugin", "main", GOPHERS, "g0"],
            [SPACE, "by-plugin", "main", OTHERS, "sim-0"],
            ["else", "by-plugin", "main", GOPHERS, "g7"],
        ],
        "claimed": [[SPACE, "by-claim", "main", "claim", DRIVER, "g1"]],
        "offered": [[OTHERS, "sim-0"], [OTHERS, "sim-1"]],
        "views": [
            view("by-plugin", "first", "g0"),
            view("by-plugin", "main", "g0", "sim-0"),
            view("by-claim", "main", "g1"),
            view("gone", "main", "g1"),
        ],
        "specs": {f"k8s.{DRIVER}-claim_uid-claim.json": json.dumps(spec), "other.json": "{}"},
    }
    held = {"key": "held", "effect": "NoSchedule"}
    devices = [{"name": "g0", "taints": [held]}, {"name": "g1"}, {"name": "g2"}]
    waiting: dict[str, str] = {}
    return Seen(
        {GOPHERS: {"g0", "g1", "g2"}, OTHERS: {"sim-0", "sim-1"}},
        [first, second],
        waiting,
        node,
        {
            GOPHERS: [served("g0", "by-plugin"), served("g1", "by-claim"), served("g2")],
            OTHERS: [served("sim-0", "by-plugin"), served("sim-1")],
        },
        [{"spec": {"driver": DRIVER, "devices": devices}}],
        [claim],
        DRIVER,
    )


def test_what_agrees_has_no_differences() -> None:
    assert [] == differences(agreeing())


def test_a_request_of_an_init_container_and_a_later_one_is_of_both() -> None:
    seen = agreeing()
    _, pod = seen.pods
    pod["spec"]["initContainers"] = [{"name": "first", "resources": {"limits": {GOPHERS: "1"}}}]
    mappings = pod["status"]["extendedResourceClaimStatus"]["requestMappings"]
    mappings.append({**mappings[0], "containerName": "first"})  # in any order
    seen.node["views"].append(view("by-claim", "first", "g1"))
    assert [] == differences(seen)


Change = Callable[[Seen], object]
CHANGES: dict[str, tuple[Change, str]] = {
    "a device of two pods, by the checkpoint": (
        lambda seen: seen.node["checkpoint"].append(saved("by-claim", "main", GOPHERS, "g0")),
        f"{GOPHERS} g0 is in 2 pods: by-claim (checkpoint); {BY_PLUGIN}",
    ),
    "a device of two pods, by both protocols": (
        lambda seen: seen.claims[0]["status"]["reservedFor"].append({"uid": "uid-by-plugin"}),
        f"{GOPHERS} g1 is in 2 pods: by-claim (claim, its own view); by-plugin (claim)",
    ),
    "a device of two pods, by what they see": (
        lambda seen: seen.node["views"][2]["envs"].update(Gopher=["g0"]),
        f"{GOPHERS} g0 is in 2 pods: by-claim (its own view); {BY_PLUGIN}",
    ),
    "a container without its own": (
        lambda seen: seen.node["views"].pop(1),
        f"by-plugin/main asked for 1 of {GOPHERS}, was given g0 and sees none",
    ),
    "a container of a claim without its own": (
        lambda seen: seen.node["views"][2]["envs"].update(Gopher=[]),
        f"by-claim/main asked for 1 of {GOPHERS}, was given g1 and sees none",
    ),
    "a container with another's": (
        lambda seen: seen.node["views"][1]["envs"].update(SIMULATED=["sim-1"]),
        f"by-plugin/main asked for 1 of {OTHERS}, was given sim-0 and sees sim-1",
    ),
    "a container with one too many": (
        lambda seen: seen.node["views"][2]["envs"].update(SIMULATED=["sim-1"]),
        f"by-claim/main sees {OTHERS} sim-1 without asking",
    ),
    "fewer than asked for": (
        lambda seen: seen.pods[1]["spec"]["containers"][0]["resources"]["limits"].update(
            {GOPHERS: "2"}
        ),
        f"by-claim/main asked for 2 of {GOPHERS}, was given g1 and sees g1",
    ),
    "an init container without its own": (
        lambda seen: seen.node["views"].pop(0),
        f"by-plugin/first asked for 1 of {GOPHERS}, was given g0 and sees none",
    ),
    "a mount of another device": (
        lambda seen: seen.node["views"][1].update(mounts=["sim-1"]),
        "by-plugin/main has variables of sim-0 and mounts of sim-1",
    ),
    "a device node that is missing": (
        lambda seen: seen.node["views"][1].update(nodes=[]),
        "by-plugin/main has variables of sim-0 and nodes of none",
    ),
    "a line that PodResources lack": (
        lambda seen: seen.node["listed"].pop(0),
        f"the checkpoint has {GOPHERS} g0 for by-plugin/main, PodResources have not",
    ),
    "a line that the checkpoint lacks": (
        lambda seen: seen.node["listed"].append([SPACE, "by-claim", "main", OTHERS, "sim-1"]),
        f"PodResources have {OTHERS} sim-1 for by-claim/main, the checkpoint has not",
    ),
    "a claim that PodResources lack": (
        lambda seen: seen.node["claimed"].clear(),
        "a claim of by-claim has g1, and PodResources have not",
    ),
    "a claim that there is not": (
        lambda seen: seen.node["claimed"].append([SPACE, "by-plugin", "main", "c", DRIVER, "g2"]),
        "PodResources has g2 of by-plugin by a claim, and no claim has",
    ),
    "a holder that /devices lacks": (
        lambda seen: seen.served[GOPHERS][0].update(holders=[]),
        f"/devices does not say that by-plugin holds {GOPHERS} g0",
    ),
    "holders that /devices does not know": (
        lambda seen: seen.served[OTHERS][0].update(holders=None),
        f"/devices does not say that by-plugin holds {OTHERS} sim-0",
    ),
    "a holder that is gone": (
        lambda seen: seen.served[GOPHERS].__setitem__(2, served("g2", "gone")),
        f"/devices says that gone holds {GOPHERS} g2, and PodResources do not",
    ),
    "a pod that cannot start": (
        lambda seen: seen.waiting.update(late="CreateContainerError: unresolvable"),
        "late does not run: CreateContainerError: unresolvable",
    ),
    "a device that its plugin has lost": (
        lambda seen: seen.served[GOPHERS].pop(2),
        f"{GOPHERS} g2 is lost: /devices does not have it",
    ),
    "a device that is unhealthy": (
        lambda seen: seen.served[OTHERS][1].update(healthy=False, reason="hot"),
        f"{OTHERS} sim-1 is unhealthy (hot), and there",
    ),
    "a device that is not there": (
        lambda seen: seen.served[GOPHERS].append(served("g9")),
        f"{GOPHERS} g9 is healthy, and not there",
    ),
    "a device that the kubelet has lost": (
        lambda seen: seen.node["offered"].pop(1),
        f"{OTHERS} sim-1 is lost: neither the kubelet nor a slice offers it",
    ),
    "a device that its slice has lost": (
        lambda seen: seen.slices[0]["spec"]["devices"].pop(2),
        f"{GOPHERS} g2 is lost: neither the kubelet nor a slice offers it",
    ),
    "a device by both protocols": (
        lambda seen: seen.node["offered"].append([GOPHERS, "g2"]),
        f"{GOPHERS} g2 is offered by both protocols",
    ),
    "a device in a slice that is gone": (
        lambda seen: seen.slices[0]["spec"]["devices"].append({"name": "g9"}),
        f"{GOPHERS} g9 is offered, and not there",
    ),
    "a CDI file that is missing": (
        lambda seen: seen.node["specs"].clear(),
        "the CDI files of claim claim give none, and it has g1",
    ),
    "a CDI file of another device": (
        lambda seen: seen.node["specs"].update(
            {k: v.replace("=g1", "=g2") for k, v in seen.node["specs"].items()}
        ),
        "the CDI files of claim claim give g2, and it has g1",
    ),
    "a CDI file that is left": (
        lambda seen: seen.node["specs"].update({f"k8s.{DRIVER}-claim_old.json": "{}"}),
        f"the CDI file k8s.{DRIVER}-claim_old.json is left: it is of no claim",
    ),
    "a status of a claim without health": (
        lambda seen: seen.claims[0]["status"].update(devices=[]),
        "the claim of by-claim has g1, and its status none ready",
    ),
    "a claim that is not ready": (
        lambda seen: seen.claims[0]["status"]["devices"][0]["conditions"][0].update(status="False"),
        "the claim of by-claim has g1, and its status none ready",
    ),
}


@pytest.mark.parametrize(("change", "expected"), CHANGES.values(), ids=CHANGES)
def test_each_difference_is_found_and_named(change: Change, expected: str) -> None:
    seen = deepcopy(agreeing())
    change(seen)
    assert expected in differences(seen)


def test_what_is_of_other_pods_and_drivers_is_passed_over() -> None:
    seen = agreeing()
    nobody = replace(seen, pods=[], claims=[], node={**seen.node, "specs": {"other.json": "{}"}})
    free = {resource: [served(one) for one in ids] for resource, ids in seen.expected.items()}
    gophers = [{"name": one} for one in ("g0", "g1", "g2")]
    slices = [{"spec": {"driver": DRIVER, "devices": gophers}}]
    assert [] == differences(replace(nobody, served=free, slices=slices))
