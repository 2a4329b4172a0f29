"""The template of a node as autoscalers read it."""

import json
import re
from typing import Final

from deviceplugin._config.names import DOMAIN
from deviceplugin.errors import ConfigError
from deviceplugin_cli.migrate.output._text import to_yaml
from deviceplugin_cli.node_template._template import Template

_CAPACITY: Final = "capacity.cluster-autoscaler.kubernetes.io/"
_AMOUNTS: Final = {
    "cpu": "cpu",
    "memory": "memory",
    "ephemeral-storage": "ephemeral-disk",
    "pods": "maxPods",
}
_MOST_ANNOTATIONS: Final = 256 * 1024
"""Bytes of all annotations of an object, keys and values."""
_TAG: Final = "k8s.io/cluster-autoscaler/node-template/"
_MOST_TAGS: Final = 50
_LONGEST_TAG: Final = (128, 256)
"""Characters of key and value."""
_LONGEST_POOL: Final = 63
"""Characters of the name of a NodePool, which is the value of a label of its nodes."""
_TAG_TEXT: Final = re.compile(r"[\w +\-=.:/@]*", re.ASCII)


def cluster_api(template: Template, driver: str) -> str:
    """Return a merge patch with the annotations of a MachineDeployment; ConfigError if it cannot.

    They have room for one kind of devices: those of ``driver``, or else of the only resource.
    """
    kinds = {driver: template.drivers[driver]} if driver else template.resources
    if len(kinds) != 1:
        many = ", ".join(kinds) or "none by name"
        raise ConfigError(
            f"the annotations have room for one resource, and there are {many}: choose one with "
            "--resource, or with --driver for pods with claims"
        )
    ((name, count),) = kinds.items()
    if not {"cpu", "memory"} <= template.amounts.keys():
        template.notes.append(
            "cpu and memory: the description has none, and the autoscaler adds no node without "
            "their annotations, or a provider that knows them"
        )
    if driver:
        template.notes.append(
            f"all attributes, capacities and resource names: the autoscaler makes {count} devices "
            f"of {driver} that have only a type: select by device.driver in classes and "
            "claims, and try it with a claim: the autoscaler of 1.36 may give out none of them"
        )
    found = {
        ours: template.amounts[one] for one, ours in _AMOUNTS.items() if one in template.amounts
    }
    kind, other = ("dra-driver", "gpu-type") if driver else ("gpu-type", "dra-driver")
    found |= {kind: name, "gpu-count": str(count)}
    taints = [f"{key}={value}:{effect}" for (key, effect), value in template.taints.items()]
    labels = [f"{key}={value}" for key, value in template.labels.items()]
    found |= {one: ",".join(all_) for one, all_ in (("taints", taints), ("labels", labels)) if all_}
    if sum(len(f"{_CAPACITY}{key}{value}") for key, value in found.items()) > _MOST_ANNOTATIONS:
        raise ConfigError("the annotations are longer than 256 KiB: give less to --label")
    patch = {**found, other: None}  # of both, the autoscaler would count the devices twice
    return to_yaml({"metadata": {"annotations": {f"{_CAPACITY}{k}": v for k, v in patch.items()}}})


def aws(template: Template, name: str) -> str:
    """Return the tags of an Auto Scaling group, for ``aws autoscaling create-or-update-tags``."""
    tags = {f"resources/{one}": str(count) for one, count in template.resources.items()}
    tags |= {f"label/{key}": value for key, value in template.labels.items()}
    for (key, effect), value in template.taints.items():
        if tags.setdefault(f"taint/{key}", f"{value}:{effect}") != f"{value}:{effect}":
            raise ConfigError(f"taint {key}: has two effects, and tags have room for one")
    tags = {f"{_TAG}{key}": value for key, value in tags.items()}
    if len(tags) > _MOST_TAGS:
        raise ConfigError(
            f"{len(tags)} tags are more than the {_MOST_TAGS} of AWS: give less to --label"
        )
    for pair in tags.items():
        for text, most in zip(pair, _LONGEST_TAG, strict=True):
            if len(text) > most or not _TAG_TEXT.fullmatch(text):
                what = f"at most {most} letters, digits, spaces and any of _.:/=+-@"
                raise ConfigError(f"{text!r} cannot be in a tag of AWS, which has {what}")
    about = {"ResourceId": name, "ResourceType": "auto-scaling-group", "PropagateAtLaunch": False}
    made = [{**about, "Key": key, "Value": value} for key, value in tags.items()]
    return json.dumps({"Tags": made}, indent=2) + "\n"


def karpenter(template: Template, name: str) -> str:
    """Return a NodeOverlay, by which Karpenter knows of resources of a NodePool's nodes."""
    if not re.fullmatch(DOMAIN, name) or len(name) > _LONGEST_POOL:
        raise ConfigError(f"--group {name!r}: is not the name of a NodePool")
    requirement = {"key": "karpenter.sh/nodepool", "operator": "In", "values": [name]}
    capacity = {one: str(count) for one, count in template.resources.items()}
    return to_yaml(
        {
            "apiVersion": "karpenter.sh/v1alpha1",
            "kind": "NodeOverlay",
            "metadata": {"name": f"{name}-devices"},
            "spec": {"requirements": [requirement], "capacity": capacity},
        }
    )
