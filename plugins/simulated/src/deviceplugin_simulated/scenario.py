"""The whole configuration: which devices there are, and what happens to them."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

import deviceplugin as dp
from deviceplugin.kit import configuration as cfg
from deviceplugin.kit.configuration import InvalidError, Place
from deviceplugin_simulated.life import Event, Life
from deviceplugin_simulated.resources import Pattern, annotation_problem, id_problem, read_resources
from deviceplugin_simulated.script import PROCESS, Process, Targets, read_timeline
from deviceplugin_simulated.settings import SimulatedSettings


def classic_pattern(settings: SimulatedSettings) -> Pattern:
    """Return the pattern of the devices of ``settings``."""
    value = f"{{{settings.value_form}}}"
    prefix, node = settings.device_id_prefix, settings.node
    last = f"{prefix}-{node}-{max(0, settings.number_devices - 1)}"
    if problem := id_problem(last):
        raise dp.ConfigError(
            f"device-id-prefix {prefix!r} and node-name {node!r} cannot be combined: "
            f"id {last!r} {problem}"
        )
    annotation = f"{settings.annotation_prefix}-{last}"
    if settings.annotation_prefix and (problem := annotation_problem(annotation)):
        raise dp.ConfigError(
            f"annotation-prefix {settings.annotation_prefix!r} does not make the name of an "
            f"annotation: {annotation!r} {problem}"
        )
    return Pattern(
        resource=settings.resource,
        count=settings.number_devices,
        id=f"{prefix}-{node}-{{index}}",
        node=node,
        annotations=(
            {f"{settings.annotation_prefix}-{{id}}": ""} if settings.annotation_prefix else {}
        ),
        envs={f"{settings.env_prefix}_{{id}}": f"/dev/{value}"} if settings.env_prefix else {},
        nodes=(
            [dp.DeviceNode(f"/dev/{settings.device_file_prefix}-{value}")]
            if settings.device_file_prefix
            else []
        ),
    )


def _node(name: str) -> Mapping[str, str]:
    return {"host": "/dev/null", "container": f"/dev/{name}"}


def _profile(compute: int, memory: int, size: int, *placements: int) -> Mapping[str, Any]:
    consumes = {"compute": compute, "memory": memory}
    return {"consumes": consumes, "size": size, "placements": list(placements)}


PROFILES: Final[Mapping[str, Mapping[str, Any]]] = {
    "8-gpus": {
        "example.com/gpu": {
            "count": 8,
            "numa": "0-1",
            "nodes": [_node("simgpu{index}"), _node("simgpuctl")],
            "envs": {"GPU_{index}": "{id}"},
            "attributes": {"model": "SIM-80G", "memory": "80Gi"},
        },
    },
    "gpus-and-nics": {
        "example.com/gpu": {
            "count": 8,
            "numa": "0-1",
            "nodes": [_node("simgpu{index}")],
            "attributes": {"model": "SIM-80G"},
        },
        "example.com/nic": {
            "count": 8,
            "numa": "0-1",
            "nodes": [_node("infiniband/uverbs{index}"), _node("infiniband/rdma_cm")],
            "attributes": {"rate": "400Gb/s"},
        },
    },
    "parts": {
        "example.com/gpu": {
            "count": 2,
            "nodes": [_node("simgpu{index}")],
            "attributes": {"model": "SIM-80G"},
            "parts": {
                "counters": {"memory": 8, "compute": 7},
                "profiles": {
                    "1g": _profile(1, 1, 1, *range(7)),
                    "2g": _profile(2, 2, 2, 0, 2, 4),
                    "3g": _profile(3, 4, 4, 0, 4),
                },
            },
        },
    },
    "36-numa-nodes": {
        "example.com/gpu": {
            "count": 72,
            "numa": "0-35",
            "envs": {"GPU_{index}": "{id}"},
            "attributes": {"model": "SIM-RACK"},
        },
    },
    "1000-dongles": {
        "example.com/dongle": {
            "count": 1000,
            "nodes": [_node("ttySIM{index}")],
            "attributes": {"serial": "S{index}"},
        },
    },
    "edge": {
        "example.com/camera": {"count": 4, "nodes": [_node("simvideo{index}")]},
        "example.com/serial": {"count": 16, "nodes": [_node("ttySIM{index}")]},
        "example.com/tpu": {
            "count": 1,
            "nodes": [_node("simtpu0")],
            "mounts": [{"host": "/etc/hostname", "container": "/run/tpu/host", "read-only": True}],
        },
    },
}

_RESOURCES: Final = "resources"
_KEYS: Final = ("profile", _RESOURCES, "timeline", "random", "seed")
_MAX_SEED: Final = 2**63


@dataclass(frozen=True)
class Scenario:
    """Devices, and what happens to them."""

    devices: Sequence[dp.Device]
    targets: Targets
    """The ids of the devices, in order."""
    timeline: Sequence[Event] = ()
    process: Process | None = None
    seed: int = 0

    def life(self) -> Life:
        """Return a new life with this script. All of them are the same."""
        at_random = self.process.events(self.targets, self.seed) if self.process else ()
        return Life.of(self.timeline, at_random)


def load(settings: SimulatedSettings) -> Scenario:
    """Return the scenario of ``settings`` and of the file that they name."""
    root = cfg.of_file(settings.devices) if settings.devices else cfg.of_plain({}, "")
    try:
        return _read(settings, root)
    finally:
        root.faults.refuse()


def _read(settings: SimulatedSettings, root: Place) -> Scenario:
    found = root.keys(_KEYS)
    given = {key: one for key, one in found.items() if one.kind != "nothing" or key == _RESOURCES}
    seed = given["seed"].take(cfg.integer(0, _MAX_SEED), 0) if "seed" in given else 0
    devices = _devices(settings, root, given)
    parts = [one.id for one in devices if one.part and one.part.on_demand]
    targets = Targets([one.id for one in devices], parts)
    timeline: list[Event] = []
    if "timeline" in given:
        with suppress(InvalidError):
            timeline = read_timeline(given["timeline"].items(), targets)
    return Scenario(
        devices,
        targets,
        timeline,
        given["random"].take(PROCESS, None) if "random" in given else None,
        seed if settings.seed is None else settings.seed,
    )


def _devices(
    settings: SimulatedSettings, root: Place, given: Mapping[str, Place]
) -> list[dp.Device]:
    """Return the devices of profile and file, or the classic ones if there are none."""
    if settings.profile and settings.profile not in PROFILES:
        raise dp.ConfigError(f"profile: {settings.profile!r} {_unknown(settings.profile)}")
    name = settings.profile
    if not name and "profile" in given:
        name = given["profile"].take(cfg.text(problem=_unknown), "")
    if not name and _RESOURCES not in given:
        return [] if "profile" in given else list(classic_pattern(settings).devices())
    resources = root.within(_RESOURCES)
    profile = cfg.of_plain({_RESOURCES: PROFILES.get(name, {})}).within(_RESOURCES)
    own: Mapping[str, Place] = {}
    if _RESOURCES in given and given[_RESOURCES].kind != "nothing":
        with suppress(InvalidError):
            own = given[_RESOURCES].keys()
    return read_resources({**profile.keys(), **own}, resources, settings.node)


def _unknown(name: str) -> str:
    return "" if name in PROFILES else f"is not a profile: {cfg.suggestion(name, PROFILES)}"
