"""Which pods hold a device through claims: those that evict may end, and no others."""

import pytest

from deviceplugin._attribution.claim_holders import with_claims
from deviceplugin._attribution.ownership import Claim
from deviceplugin._attribution.podresources import ClaimedDevice, Hold, Holdings

DRIVER, R = "gopher.example.com", "example.com/gopher"
GARY, GINA, SHARE = (R, "gary"), (R, "gina"), (R, "gina::1")
CLAIMS = {
    GARY: Claim("default", "c", "uid-1"),
    GINA: Claim("default", "shared", "uid-2"),
    SHARE: Claim("other", "c", "uid-3"),
}
PLACES = {(DRIVER, "n1/p", "gary"): [GARY], (DRIVER, "n1/p", "gina"): [GINA, SHARE]}


@pytest.mark.parametrize(
    ("name", "claim", "namespace", "held"),
    [
        ("gary", "c", "default", [GARY]),
        ("gary", "c", "other", []),  # the same name in another namespace
        ("gary", "watched", "default", []),  # admin access, or an old record of a claim
        ("gina", "shared", "default", [GINA]),
        ("gina", "c", "other", [SHARE]),
        ("gina", "c", "default", []),  # it has another device of the driver
        ("gerd", "c", "default", []),  # a new claim of the same name, with another device
    ],
)
@pytest.mark.parametrize(("driver", "pool"), [(DRIVER, "n1/p"), (DRIVER, "n2/p"), ("x", "n1/p")])
def test_a_pod_holds_what_its_own_claim_has_here_and_nothing_else(
    driver: str, pool: str, name: str, claim: str, namespace: str, held: list[tuple[str, str]]
) -> None:
    one = ClaimedDevice(driver, pool, name, claim, namespace, "pod", "main")
    found = with_claims(Holdings(frozenset(), claimed=frozenset({one})), CLAIMS, PLACES)
    by_pod = {hold for hold in found.holds or () if hold.pod}
    expected = held if (driver, pool) == (DRIVER, "n1/p") else []
    assert {Hold(*key, namespace, "pod", "main", claim) for key in expected} == by_pod
