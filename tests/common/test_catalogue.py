"""The resources of a process and the fronts that offer them, without a kubelet."""

import pytest
from typing_extensions import override

from deviceplugin._inventory.published import Catalogue, Front, Resource
from scripted_plugin import ScriptedPlugin


class Shelf(Front):
    """A front that shows what it was asked for."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str]] = []

    @override
    def advertise(self, resource: Resource) -> None:
        self.asked.append(("advertise", resource.name))

    @override
    def withdraw(self, resource: Resource) -> None:
        self.asked.append(("withdraw", resource.name))


@pytest.fixture
def catalogue() -> Catalogue:
    return Catalogue()


def claimed(catalogue: Catalogue, name: str) -> Resource:
    resource = catalogue.claim(name, ScriptedPlugin())
    assert resource
    return resource


def test_a_name_belongs_to_the_first_plugin_until_it_is_withdrawn(catalogue: Catalogue) -> None:
    one = claimed(catalogue, "x.io/one")
    assert catalogue.claim("x.io/one", ScriptedPlugin()) is None
    assert {"x.io/one": one} == catalogue.resources()
    catalogue.withdraw(one)
    assert {} == catalogue.resources()
    assert one is not claimed(catalogue, "x.io/one")


def test_every_front_offers_all_that_is_advertised_also_what_was_before(
    catalogue: Catalogue,
) -> None:
    first, second = Shelf(), Shelf()
    catalogue.attach(first)
    one, two = claimed(catalogue, "x.io/one"), claimed(catalogue, "x.io/two")
    catalogue.advertise(one)
    catalogue.attach(second)
    catalogue.advertise(two)
    catalogue.withdraw(one)
    later = [("advertise", "x.io/two"), ("withdraw", "x.io/one")]
    assert [("advertise", "x.io/one"), *later] == first.asked == second.asked


def test_a_front_that_is_detached_offers_nothing_more(catalogue: Catalogue) -> None:
    first, second = Shelf(), Shelf()
    catalogue.attach(first)
    catalogue.attach(second)
    catalogue.detach(first)
    catalogue.advertise(claimed(catalogue, "x.io/one"))
    assert ([], [("advertise", "x.io/one")]) == (first.asked, second.asked)


def test_a_resource_that_was_only_claimed_is_not_offered(catalogue: Catalogue) -> None:
    claimed(catalogue, "x.io/one")
    front = Shelf()
    catalogue.attach(front)
    assert [] == front.asked
