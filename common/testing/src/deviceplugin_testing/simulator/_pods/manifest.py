"""Pods from manifests in JSON or YAML."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from deviceplugin._config.documents.yaml_nodes import plain
from deviceplugin_testing.simulator._pods.pod import (
    Container,
    ContainerClaim,
    ExtendedClaim,
    Pod,
    PodClaim,
    RequestMapping,
)


def documents(path: Path) -> list[Any]:
    """Return the documents in ``path``; raise ``OSError`` or ``ValueError``."""
    return plain(path.read_bytes())


class ManifestError(Exception):
    """A manifest cannot be read, or has no pod."""


def load_pods(path: Path) -> list[Pod]:
    """Return the pods in the YAML or JSON file ``path``; raise ``ManifestError``."""
    try:
        found = documents(path)
    except OSError as error:
        raise ManifestError(f"{path}: {error.strerror}") from None
    except ValueError as error:
        raise ManifestError(f"{path}: {error}") from None
    pods = [_pod(path, document) for document in found if document is not None]
    if not pods:
        raise ManifestError(f"{path}: has no pod")
    return pods


def _pod(path: Path, document: Any) -> Pod:
    try:
        if document["kind"] != "Pod":
            raise ManifestError(f"{path}: {document['kind']} is not a Pod")
        return pod_of(document)
    except (KeyError, TypeError, AttributeError) as error:
        raise ManifestError(f"{path}: not a pod's manifest: {error!r}") from None
    except ValueError as error:
        raise ManifestError(f"{path}: {error}") from None


def pod_of(document: Mapping[str, Any]) -> Pod:
    """Return the pod that the API server has as ``document``.

    Raises:
        KeyError, TypeError, AttributeError: It is not a pod.
        ValueError: A value in it cannot be understood.
    """
    metadata, spec, status = document["metadata"], document["spec"], document.get("status") or {}
    made = {
        each["name"]: each.get("resourceClaimName") or ""
        for each in status.get("resourceClaimStatuses") or ()
    }
    return Pod(
        metadata["name"],
        [_container(each) for each in spec["containers"]],
        [_container(each) for each in spec.get("initContainers") or ()],
        namespace=metadata.get("namespace", "default"),
        uid=metadata.get("uid", ""),
        claims=[_claim(each, made) for each in spec.get("resourceClaims") or ()],
        extended=_extended(status.get("extendedResourceClaimStatus")),
    )


def _claim(document: Mapping[str, Any], made: Mapping[str, str]) -> PodClaim:
    name = document["name"]
    if claim := document.get("resourceClaimName"):
        return PodClaim(name, claim)
    return PodClaim(name, made.get(name), from_template=True)


def _extended(status: Mapping[str, Any] | None) -> ExtendedClaim | None:
    if not status:
        return None
    mappings = [
        RequestMapping(each["containerName"], each["resourceName"], each["requestName"])
        for each in status["requestMappings"]
    ]
    return ExtendedClaim(status["resourceClaimName"], mappings)


def _container(document: Mapping[str, Any]) -> Container:
    resources = document.get("resources") or {}
    limits = resources.get("limits") or {}
    return Container(
        document["name"],
        {name: _count(name, value) for name, value in limits.items() if "/" in name},
        restarts_always=document.get("restartPolicy") == "Always",
        claims=[
            ContainerClaim(each["name"], each.get("request", ""))
            for each in resources.get("claims") or ()
        ],
    )


def _count(resource: str, value: object) -> int:
    try:
        count = int(str(value))
    except ValueError:
        raise ValueError(f"{resource}: {value!r} is not a number of devices") from None
    if count < 0:
        raise ValueError(f"{resource}: {count} is negative")
    return count
