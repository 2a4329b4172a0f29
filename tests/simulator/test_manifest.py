"""Pods from manifests."""

from pathlib import Path

import pytest

from deviceplugin_testing.simulator import (
    Container,
    ContainerClaim,
    ExtendedClaim,
    Pod,
    PodClaim,
    RequestMapping,
)
from deviceplugin_testing.simulator._pods.manifest import ManifestError, load_pods

POD = """
kind: Pod
metadata: {name: demo, namespace: lab, uid: "1"}
spec:
  initContainers: [{name: first}, {name: side, restartPolicy: Always}]
  containers:
  - {name: main, resources: {limits: {x.io/dev: 2, cpu: 500m, y.io/dev: "1"}}}
---
kind: Pod
metadata: {name: plain}
spec: {containers: [{name: main, resources: {}}]}
---
"""


def load(tmp_path: Path, text: str, name: str = "pod.yaml") -> list[Pod]:
    path = tmp_path / name
    path.write_text(text)
    return load_pods(path)


def test_all_pods_of_a_file_are_loaded(tmp_path: Path) -> None:
    demo = Pod(
        "demo",
        [Container("main", {"x.io/dev": 2, "y.io/dev": 1})],
        [Container("first", {}), Container("side", {}, restarts_always=True)],
        namespace="lab",
        uid="1",
    )
    assert [demo, Pod("plain", [Container("main", {})])] == load(tmp_path, POD)


CLAIMING = """
kind: Pod
metadata: {name: demo, uid: "1"}
spec:
  resourceClaims:
  - {name: given, resourceClaimName: gpu}
  - {name: made, resourceClaimTemplateName: t}
  - {name: none, resourceClaimTemplateName: t}
  - {name: later, resourceClaimTemplateName: t}
  containers:
  - name: main
    resources: {limits: {x.io/dev: 1}, claims: [{name: given}, {name: made, request: r}]}
status:
  resourceClaimStatuses: [{name: made, resourceClaimName: demo-made-x}, {name: none}]
  extendedResourceClaimStatus:
    resourceClaimName: extra
    requestMappings: [{containerName: main, resourceName: x.io/dev, requestName: r0}]
"""


def test_claims_are_loaded_with_their_objects(tmp_path: Path) -> None:
    uses = [ContainerClaim("given"), ContainerClaim("made", "r")]
    demo = Pod(
        "demo",
        [Container("main", {"x.io/dev": 1}, claims=uses)],
        uid="1",
        claims=[
            PodClaim("given", "gpu"),
            PodClaim("made", "demo-made-x", from_template=True),
            PodClaim("none", "", from_template=True),
            PodClaim("later", None, from_template=True),
        ],
        extended=ExtendedClaim("extra", [RequestMapping("main", "x.io/dev", "r0")]),
    )
    (loaded,) = load(tmp_path, CLAIMING)
    assert demo == loaded
    assert frozenset({"x.io/dev"}) == loaded.containers[0].claimed


def limited(count: str) -> str:
    limits = f"{{limits: {{x.io/dev: {count}}}}}"
    container = f"{{name: c, resources: {limits}}}"
    return f"{{kind: Pod, metadata: {{name: p}}, spec: {{containers: [{container}]}}}}"


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "has no pod"),
        ("{", "expected the node content"),
        ("kind: Node", "Node is not a Pod"),
        ("kind: Pod", "not a pod's manifest: KeyError"),
        ("[]", "not a pod's manifest: TypeError"),
        ("{kind: Pod, metadata: [], spec: {}}", "not a pod's manifest"),
        (limited("1.5"), "x.io/dev: 1.5 is not a number of devices"),
        (limited("-1"), "x.io/dev: -1 is negative"),
    ],
)
def test_what_is_wrong_with_a_manifest_is_told(tmp_path: Path, text: str, complaint: str) -> None:
    with pytest.raises(ManifestError, match=complaint):
        load(tmp_path, text)
    with pytest.raises(ManifestError, match=r"none\.yaml: No such file or directory"):
        load_pods(tmp_path / "none.yaml")
