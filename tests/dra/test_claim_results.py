"""What a claim's object says, and what is refused in words."""

from typing import Any

import pytest

import deviceplugin as dp
from deviceplugin._attribution.ownership import Claim
from deviceplugin._dra.claims.reading import Configuration, Result, results

CLAIM = Claim("default", "one", "uid-one")
DRIVER = "gopher.example.com"


def document(*found: dict[str, Any], config: Any = None) -> dict[str, Any]:
    devices = {"results": list(found), "config": config}
    return {"metadata": {"uid": "uid-one"}, "status": {"allocation": {"devices": devices}}}


def ours(request: str = "one", **more: Any) -> dict[str, Any]:
    return {"request": request, "driver": DRIVER, "pool": "pool", "device": "gary", **more}


def opaque(driver: str, **more: Any) -> dict[str, Any]:
    return {"opaque": {"driver": driver, "parameters": {"fast": True}}, **more}


def refusal(found: Any) -> str:
    with pytest.raises(dp.AllocationError) as info:
        results(found, CLAIM, DRIVER)
    return str(info.value)


def test_results_of_other_drivers_are_skipped() -> None:
    other = {**ours(), "driver": "other.example.com"}
    assert [Result("one", "pool", "gary")] == results(document(other, ours()), CLAIM, DRIVER)


def test_the_kubelet_knows_requests_and_no_subrequests() -> None:
    expected = Result("one", "pool", "gary", subrequest="big")
    assert [expected] == results(document(ours("one/big")), CLAIM, DRIVER)


def test_shares_admin_access_and_tolerations_are_read() -> None:
    found = document(ours(shareID="s-1", adminAccess=True, tolerations=[{"operator": "Exists"}]))
    expected = Result("one", "pool", "gary", share="s-1", admin=True, tolerant=True)
    assert [expected] == results(found, CLAIM, DRIVER)


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        (
            {"metadata": {"uid": "x"}},
            "claim default/one has uid 'x' instead of uid-one: it was deleted and created again",
        ),
        ({"metadata": {"uid": "uid-one"}}, "claim default/one is not allocated"),
        ({"metadata": {"uid": "uid-one"}, "status": {}}, "claim default/one is not allocated"),
        (document(), f"claim default/one has no device of driver {DRIVER}"),
        ({}, "claim default/one cannot be read: KeyError('metadata')"),
        (document({"driver": DRIVER}), "claim default/one cannot be read: KeyError('request')"),
    ],
)
def test_a_claim_that_gives_nothing_is_refused_with_the_reason(found: Any, reason: str) -> None:
    assert reason == refusal(found)


@pytest.mark.parametrize(
    ("config", "origin"),
    [
        (opaque(DRIVER, source="FromClaim"), "the claim itself"),
        (opaque(DRIVER, source="FromClass"), "its class"),
        (opaque(DRIVER, source="FromClaim", requests=["one"]), "the claim itself"),
        (opaque(DRIVER, source="FromClaim", requests=["one/big"]), "the claim itself"),
    ],
)
def test_a_configuration_for_the_driver_is_found(config: Any, origin: str) -> None:
    configurations = [opaque("other.example.com"), config]
    (found,) = results(document(ours("one/big"), config=configurations), CLAIM, DRIVER)
    assert (Configuration(origin, {"fast": True}),) == found.configurations
    assert {"fast": True} == found.parameters


def parameters(number: int, source: str, *requests: str) -> dict[str, Any]:
    found = {"opaque": {"driver": DRIVER, "parameters": {"number": number}}, "source": source}
    return {**found, **({"requests": list(requests)} if requests else {})}


@pytest.mark.parametrize(
    ("config", "wanted"),
    [
        ([parameters(1, "FromClass"), parameters(2, "FromClaim")], [1, 2]),
        # Of whom it is matters more than the order.
        ([parameters(2, "FromClaim"), parameters(1, "FromClass")], [1, 2]),
        ([parameters(1, "FromClaim", "one"), parameters(2, "FromClaim")], [1, 2]),
        ([parameters(1, "FromClaim"), parameters(2, "FromClaim", "one")], [1, 2]),
        ([parameters(1, "FromClass"), parameters(2, "FromClaim", "two")], [1]),
    ],
)
def test_the_last_configuration_of_the_claim_prevails(config: Any, wanted: list[int]) -> None:
    (found,) = results(document(ours(), config=config), CLAIM, DRIVER)
    assert [{"number": one} for one in wanted] == [one.parameters for one in found.configurations]
    assert {"number": wanted[-1]} == found.parameters


def test_a_configuration_of_a_kind_that_is_unknown_is_refused() -> None:
    assert (
        "claim default/one: it has a configuration of an unknown kind, from the claim itself: "
        "remove it"
    ) == refusal(document(ours(), config=[{"source": "FromClaim", "telepathic": {}}]))


def test_configurations_for_others_are_skipped() -> None:
    config = [
        opaque("other.example.com"),
        opaque(DRIVER, requests=["two"]),
        opaque(DRIVER, requests=["one/small"]),
        {"requests": ["two"], "telepathic": {}},
    ]
    (found,) = results(document(ours("one/big"), config=config), CLAIM, DRIVER)
    assert ((), None) == (found.configurations, found.parameters)
