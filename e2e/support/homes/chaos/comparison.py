"""Compares what a node, its API server, its plugins and its containers say of the same devices."""

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any, Final

from homes.chaos.seen import GOPHERS, Seen, allocated

_GIVES: Final = "Gopher="
"""What a CDI file of the gopher plugin gives to a container."""


def shared(owners: Iterable[tuple[Any, str]]) -> dict[Any, set[str]]:
    """Return the devices with several owners, of pairs of a device and an owner."""
    found: dict[Any, set[str]] = {}
    for device, owner in owners:
        found.setdefault(device, set()).add(owner)
    return {device: names for device, names in found.items() if len(names) > 1}


def differences(seen: Seen) -> list[str]:
    """Return each thing in which two do not agree, or by which a device is lost or in two pods."""
    parts = (
        _in_two,
        _given,
        _kubelet,
        _holders,
        _lost,
        _offered,
        _mounted,
        _cdi,
        _status,
        _waiting,
    )
    return sorted({one for part in parts for one in part(seen)})


def _in_two(seen: Seen) -> Iterator[str]:
    sources = {
        "checkpoint": seen.checkpoint(),
        "PodResources": seen.listed(),
        "claim": seen.claimed(),
        "its own view": seen.views(),
    }
    by_device: dict[tuple[str, str], dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for source, held in sources.items():
        for one in held:
            by_device[one.resource, one.device][one.pod].add(source)
    for (resource, device), pods in by_device.items():
        if len(pods) > 1:
            who = "; ".join(f"{pod} ({', '.join(sorted(pods[pod]))})" for pod in sorted(pods))
            yield f"{resource} {device} is in {len(pods)} pods: {who}"


def _given(seen: Seen) -> Iterator[str]:
    """Each container has what was given to it, and as many devices as it asked for."""
    given, own = seen.checkpoint() | seen.claimed(), seen.views()
    for (pod, container, resource), count in seen.asked().items():
        at = (pod, container, resource)
        got = {one.device for one in given if at == one[:3]}
        sees = {one.device for one in own if at == one[:3]}
        if got != sees or count != len(got):
            yield (
                f"{pod}/{container} asked for {count} of {resource}, was given"
                f" {_text(got)} and sees {_text(sees)}"
            )
    for one in own:
        if one[:3] not in seen.asked():
            yield f"{one.pod}/{one.container} sees {one.resource} {one.device} without asking"


def _kubelet(seen: Seen) -> Iterator[str]:
    """The kubelet lists what claims have, and what it has saved, but of no container that ended."""
    listed, saved = seen.listed(), seen.checkpoint()
    ended = {
        (pod["metadata"]["name"], one["name"])
        for pod in seen.pods
        for one in pod["spec"].get("initContainers", ())
        if one.get("restartPolicy") != "Always"
    }
    for pod, container, resource, device in listed - saved:
        line = f"{resource} {device} for {pod}/{container}"
        yield f"PodResources have {line}, the checkpoint has not"
    for pod, container, resource, device in saved - listed:
        if (pod, container) not in ended:
            line = f"{resource} {device} for {pod}/{container}"
            yield f"the checkpoint has {line}, PodResources have not"
    names = {*seen.names.values()}
    found = {
        (pod, device)
        for _, pod, _, _, driver, device in seen.node["claimed"]
        if pod in names and driver == seen.driver
    }
    wanted = {(one.pod, one.device) for one in seen.claimed()}
    for pod, device in found - wanted:
        yield f"PodResources has {device} of {pod} by a claim, and no claim has"
    for pod, device in wanted - found:
        yield f"a claim of {pod} has {device}, and PodResources have not"


def _holders(seen: Seen) -> Iterator[str]:
    """A plugin serves who holds its devices, as the kubelet lists it, also if the pod has ended."""
    spaces = {one["metadata"]["namespace"] for one in seen.pods}
    truth = {
        (pod, resource, device)
        for space, pod, _, resource, device in seen.node["listed"]
        if space in spaces and resource in seen.expected
    }
    truth |= {
        (pod, GOPHERS, device)
        for space, pod, _, _, driver, device in seen.node["claimed"]
        if space in spaces and driver == seen.driver
    }
    served = {
        (holder["pod"], resource, device["id"])
        for resource, devices in seen.served.items()
        for device in devices
        for holder in device["holders"] or ()
        if holder["namespace"] in spaces
    }
    for pod, resource, device in served - truth:
        yield f"/devices says that {pod} holds {resource} {device}, and PodResources do not"
    for pod, resource, device in truth - served:
        yield f"/devices does not say that {pod} holds {resource} {device}"


def _waiting(seen: Seen) -> Iterator[str]:
    for pod, reason in seen.waiting.items():
        yield f"{pod} does not run: {reason}"


def _lost(seen: Seen) -> Iterator[str]:
    for resource, ids in seen.expected.items():
        served = {one["id"]: one for one in seen.served[resource]}
        for device in ids - served.keys():
            yield f"{resource} {device} is lost: /devices does not have it"
        for device, one in served.items():
            if one["healthy"] != (device in ids):
                state = "healthy" if one["healthy"] else f"unhealthy ({one.get('reason')})"
                yield f"{resource} {device} is {state}, and {'' if device in ids else 'not '}there"


def _offered(seen: Seen) -> Iterator[str]:
    """Each device is offered by one protocol, and nothing else is."""
    by_plugin = {(resource, device) for resource, device in seen.node["offered"]}
    by_dra = {
        (GOPHERS, device["name"])
        for one in seen.slices
        for device in one["spec"].get("devices", ())
        if not device.get("taints")
    }
    held = {one[2:] for one in seen.checkpoint() | seen.claimed()}
    there = {(resource, device) for resource, ids in seen.expected.items() for device in ids}
    for resource, device in by_plugin & by_dra:
        yield f"{resource} {device} is offered by both protocols"
    for resource, device in there - by_plugin - by_dra - held:
        yield f"{resource} {device} is lost: neither the kubelet nor a slice offers it"
    ours = {one for one in by_plugin | by_dra if one[0] in seen.expected}
    for resource, device in ours - there:
        yield f"{resource} {device} is offered, and not there"


def _mounted(seen: Seen) -> Iterator[str]:
    """A container sees mounts and nodes of the devices whose variables it has."""
    for view in seen.running_views():
        own = {*view["envs"]["SIMULATED"]}
        for kind in ("mounts", "nodes"):
            if own != {*view[kind]}:
                at = f"{view['pod']}/{view['container']}"
                yield f"{at} has variables of {_text(own)} and {kind} of {_text({*view[kind]})}"


def _cdi(seen: Seen) -> Iterator[str]:
    """Each claim of a running pod has a CDI file with its devices, and no other claim has one."""
    ours = {name: text for name, text in seen.node["specs"].items() if seen.driver in name}
    for claim in seen.claims:
        uid, name = claim["metadata"]["uid"], claim["metadata"]["name"]
        texts = [ours.pop(one) for one in [*ours] if uid in one]
        users = {one["uid"] for one in claim.get("status", {}).get("reservedFor", ())}
        if not users & seen.names.keys():
            continue
        wanted = {one["device"] for one in allocated(claim, seen.driver)}
        if wanted != (found := {device for text in texts for device in _gives(text)}):
            yield f"the CDI files of claim {name} give {_text(found)}, and it has {_text(wanted)}"
    for name in ours:
        yield f"the CDI file {name} is left: it is of no claim"


def _gives(text: str) -> set[str]:
    """Return the devices that a CDI file gives."""
    edits = [one["containerEdits"] for one in json.loads(text)["devices"]]
    variables = [one for edit in edits for one in edit.get("env", ())]
    gophers = [one.removeprefix(_GIVES) for one in variables if one.startswith(_GIVES)]
    return {name for one in gophers for name in one.split(",")}


def _status(seen: Seen) -> Iterator[str]:
    """The status of a claim of a running pod has the health of each of its devices."""
    for uid, pod in seen.names.items():
        for claim in seen.claims_of(uid):
            ready = {
                one["device"]
                for one in claim["status"].get("devices", ())
                for condition in one.get("conditions", ())
                if (condition["type"], condition["status"]) == ("Ready", "True")
            }
            wanted = {one["device"] for one in allocated(claim, seen.driver)}
            if ready != wanted:
                yield f"the claim of {pod} has {_text(wanted)}, and its status {_text(ready)} ready"


def _text(devices: Iterable[str]) -> str:
    return ", ".join(sorted(devices)) or "none"
