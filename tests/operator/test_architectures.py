"""Pods of the operator's run where their images do."""

from typing import Any

import pytest

from deviceplugin_operator.crd.specification import read
from deviceplugin_operator.rollout import desired

BUILT = {"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64", "arm64"]}
PROFILES: dict[str, Any] = {
    "profileLabel": "example.com/profile",
    "profiles": {"many": {"gopher": {"variable": "Many"}}},
}


def required(profile: str, **spec: Any) -> list[Any]:
    """Return what the pods of a profile require of nodes."""
    wanted = read({"metadata": {"name": "x"}, "spec": {"plugin": "gopher", **spec}})
    (variant,) = (one for one in wanted.variants if one.profile == profile)
    affinity = desired.revision(wanted, variant).pod["spec"]["affinity"]
    assert "podAntiAffinity" in affinity
    if "nodeAffinity" not in affinity:
        return []
    (term,) = affinity["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"][
        "nodeSelectorTerms"
    ]
    found: list[Any] = term["matchExpressions"]
    return found


def test_our_images_run_on_the_architectures_that_they_are_built_for() -> None:
    assert [BUILT] == required("")


@pytest.mark.parametrize(("profile", "operator"), [("", "NotIn"), ("many", "In")])
def test_a_profile_narrows_that_further(profile: str, operator: str) -> None:
    first, second = required(profile, **PROFILES)
    assert BUILT == first
    assert (operator, ["many"]) == (second["operator"], second["values"])


def test_an_image_of_ones_own_may_be_for_others() -> None:
    assert [] == required("", image="registry.example.com/mine:1")
    (own,) = required("many", image="registry.example.com/mine:1", **PROFILES)
    assert ["many"] == own["values"]
