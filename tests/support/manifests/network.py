"""What we expect of the network of pods that are deployed."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from manifests.rights import has_token

Manifest = Mapping[str, Any]

_API_PORTS = {(443, "TCP"), (6443, "TCP")}
"""Where the API server is; let out to it are only pods with a token."""
_TO_PLUGINS = {"podSelector": {"matchLabels": {"app.kubernetes.io/component": "device-plugin"}}}


def network_problems(
    manifests: Sequence[Manifest], templates: Sequence[Manifest], container: Manifest
) -> Iterator[str]:
    """Yield what is open to pods of ``templates``, of which the first is the plugin's."""
    labels = templates[0]["metadata"]["labels"]
    ports = {port["name"] for port in container.get("ports", ())}
    for one in templates:
        closed = {way for policy in _policies(manifests, one) for way in policy["policyTypes"]}
        yield from (f"network: {way} is open" for way in ("Ingress", "Egress") if way not in closed)
        for policy in _policies(manifests, one):
            yield from _of_egress(
                policy, one["spec"], {port["containerPort"] for port in container.get("ports", ())}
            )
            for rule in policy.get("ingress", ()):
                if (
                    not rule.get("from")
                    or {port["port"] for port in rule.get("ports", ())} != ports
                ):
                    yield "network: ingress from anywhere, or to more than the ports there are"
    for monitor in (one["spec"] for one in manifests if one["kind"] == "PodMonitor"):
        if not monitor["selector"]["matchLabels"].items() <= labels.items():
            yield "pod monitor: selects other pods"
        if {endpoint["port"] for endpoint in monitor["podMetricsEndpoints"]} != ports:
            yield "pod monitor: no such port"


def _policies(manifests: Sequence[Manifest], template: Manifest) -> list[Manifest]:
    """Return the network policies for the pods of ``template``."""
    labels = template["metadata"]["labels"].items()
    found = [one["spec"] for one in manifests if one["kind"] == "NetworkPolicy"]
    return [one for one in found if one["podSelector"]["matchLabels"].items() <= labels]


def _of_egress(policy: Manifest, pod: Manifest, plugin: set[int]) -> Iterator[str]:
    for rule in policy.get("egress", ()):
        out = {(port["port"], port["protocol"]) for port in rule.get("ports", ())}
        asks = rule.get("to") == [_TO_PLUGINS] and out == {(port, "TCP") for port in plugin}
        if not asks and (out != _API_PORTS or not any(map(has_token, pod["volumes"]))):
            yield "network: egress is let out"
