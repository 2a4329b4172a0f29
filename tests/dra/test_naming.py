"""Names for slices: whatever an id or a resource is called, the API server accepts its name."""

import hashlib
import random
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import deviceplugin as dp
from deviceplugin._dra import naming
from deviceplugin._dra.claims.devices import names_of
from deviceplugin._dra.naming import (
    attribute_names,
    device_name,
    device_names,
    former_name,
    is_former,
    pool_name,
    slice_name,
)
from deviceplugin._inventory.published import Resource
from deviceplugin_testing.simulator._control_plane.rules.names import identifier, label, subdomain
from deviceplugin_testing.simulator._control_plane.rules.slices import check_driver
from scripted_plugin import ScriptedPlugin

DRIVER = "gopher.example.com"
ALIKE = ["SEriALnuMBERofAnad", "SeRIalNUmberoFAnad"]
"""Two ids that had one name."""
IDS = st.text(min_size=1, max_size=63) | st.text(
    "-abcdefABCDEF0123456789:._/", min_size=1, max_size=63
)
LABELS = st.text("ab0-", min_size=1, max_size=63).map(lambda text: text.strip("-") or "x")
NODES = st.lists(LABELS, min_size=1, max_size=6).map(
    lambda labels: ".".join(labels)[:253].strip("-.")
)
DOMAINS = NODES.map(lambda text: text[:244].strip("-."))
LASTS = st.from_regex(r"([A-Za-z0-9][-A-Za-z0-9_.]{0,61})?[A-Za-z0-9]", fullmatch=True)


@pytest.mark.parametrize(
    ("device_id", "name"),
    [
        ("gerd", "gerd"),
        ("gpu-0", "gpu-0"),
        ("0000:3b:00.0", "0000-3b-00-0-b4cf818e"),
        ("GPU-4404041a", "gpu-4404041a-34f76c25"),
        ("gpu-4404041a", "gpu-4404041a-aa882221"),
        ("ä", "33e6d73f"),
    ],
)
def test_names_of_devices(device_id: str, name: str) -> None:
    """They are written down here because a claim that is allocated has them."""
    assert name == former_name(device_id)
    digits = hashlib.sha256(device_id.encode()).hexdigest()
    begin, hyphen, hashed = name.rpartition("-")
    longer = name if hashed != digits[:8] else f"{begin}{hyphen}{digits[8:12]}--{digits[:8]}"
    assert longer == device_name(device_id)


def test_names_have_enough_digits_that_nobody_finds_a_second_id_for_one() -> None:
    assert former_name(ALIKE[0]) == former_name(ALIKE[1])  # found among 100,000
    assert {device_name(one): one for one in ALIKE} == device_names(ALIKE)
    assert {} == device_names(ALIKE, former_name)


@given(IDS)
def test_an_id_that_is_called_like_a_former_or_present_name_is_another_device(one: str) -> None:
    assert is_former(former_name(one)) == (former_name(one) != one)
    assert not is_former(device_name(one))
    for name in (former_name(one), device_name(one)):
        assert one == name or {device_name(name), former_name(name)}.isdisjoint(
            {device_name(one), former_name(one)}
        )


@given(st.lists(IDS, unique=True, max_size=30), st.randoms())
def test_names_of_devices_are_accepted_and_unique_in_any_order(
    ids: list[str], chance: random.Random
) -> None:
    named = device_names(ids)
    assert sorted(ids) == sorted(named.values())
    assert [name for name in named if any(label(name))] == []
    chance.shuffle(ids)
    assert named == device_names(ids)
    assert named == {device_name(device_id): device_id for device_id in ids}


def test_two_ids_with_one_name_are_both_absent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(naming, "_digits", lambda *_texts: "0" * 64)
    assert {"c": "c"} == device_names(["A", "a:", "A:", "c"])


@settings(max_examples=40)
@given(st.lists(st.tuples(NODES, DOMAINS, LASTS), unique=True, min_size=1, max_size=4))
def test_names_of_pools_are_accepted_and_no_two_have_one(
    places: list[tuple[str, str, str]],
) -> None:
    pools = [pool_name(node, f"{domain}/{last}") for node, domain, last in places]
    assert len(set(pools)) == len(pools)
    assert [] == [pool for pool in pools if len(pool) > 253]
    assert not any(any(subdomain(part)) for pool in pools for part in pool.split("/"))


def test_names_of_pools() -> None:
    assert "lab-node/example.com/gopher" == pool_name("lab-node", "example.com/gopher")
    assert "n/example.com/a.b" == pool_name("n", "example.com/a.b")
    assert "n/example.com/a-b-08eb65ad" == pool_name("n", "example.com/A_b")
    long = "d" * 240 + ".com/x"
    assert f"worker-3/{naming._hash(long)}" == pool_name("worker-3", long)


@settings(max_examples=40)
@given(NODES, DOMAINS, LASTS, st.integers(0, 0xFFFF))
def test_names_of_slices_are_accepted_and_sort_by_their_index(
    node: str, domain: str, last: str, index: int
) -> None:
    pool = pool_name(node, f"{domain}/{last}")
    name, following = (slice_name(DRIVER, node, pool, i) for i in (index, index + 1))
    assert len(name) <= 254
    assert not any(subdomain(name))
    assert index == 0xFFFF or name < following


def test_a_slice_has_a_name_that_people_recognize() -> None:
    name = slice_name(DRIVER, "worker-3", "worker-3/example.com/gopher", 10)
    assert "worker-3-gopher.example.com-" == name[:28]
    assert "-000a" == name[-5:]


NAMES = st.text(max_size=80) | st.from_regex(
    r"([a-z.]{1,4}/)?[-_a-z0-9]{1,40}", fullmatch=True
).map(lambda text: text.replace("q", DRIVER))


@settings(max_examples=40)
@given(st.lists(NAMES, unique=True, max_size=20), st.randoms())
def test_names_of_attributes_are_accepted_unique_and_the_same_in_any_order(
    given_names: list[str], chance: random.Random
) -> None:
    found = attribute_names(given_names, DRIVER, ("id", "resource"))
    assert len(set(found.values())) == len(given_names)
    assert not {"id", "resource"} & set(found.values())
    for name in found.values():
        domain, slash, last = name.rpartition("/")
        assert not any(identifier(last))
        assert len(last) <= 32
        assert not slash or not any(check_driver("", domain))
    shuffled = list(given_names)
    chance.shuffle(shuffled)
    assert found == attribute_names(shuffled, DRIVER, ("id", "resource"))


def test_names_of_attributes() -> None:
    given_names = ["model", "physical-function", "2nd", "resource.kubernetes.io/pcieRoot"]
    assert [
        "model",
        "physical_function",
        "_2nd",
        "resource.kubernetes.io/pcieRoot",
    ] == list(attribute_names(given_names, DRIVER).values())
    assert {f"{DRIVER}/lanes": "lanes"} == attribute_names([f"{DRIVER}/lanes"], DRIVER)


def test_of_attributes_that_become_the_same_the_valid_one_keeps_its_name() -> None:
    found = attribute_names(["a-b", "a_b", "a.b", f"{DRIVER}/a_b"], DRIVER)
    assert "a_b" == found["a_b"]
    assert 4 == len(set(found.values()))
    assert "id" != attribute_names(["id"], DRIVER, ("id",))["id"]


def test_a_claim_may_have_a_share_by_its_own_name_or_by_that_of_the_whole() -> None:
    resource = Resource("example.com/gpu", ScriptedPlugin())
    resource.publish([dp.Device("gpu::0", share_of="gpu"), dp.Device("alone")])
    place = partial(names_of, "d.example.com", "node", resource=resource)
    pool = pool_name("node", "example.com/gpu")
    assert ["alone"] == [name for _, _, name in place(("example.com/gpu", "alone"))]
    share = list(place(("example.com/gpu", "gpu::0")))
    names = [device_name("gpu::0"), former_name("gpu::0"), "gpu"]
    assert [("d.example.com", pool, name) for name in names] == share
    gone = names_of("d.example.com", "node", ("example.com/gpu", "gpu::0"), None)
    assert share[:2] == list(gone)
