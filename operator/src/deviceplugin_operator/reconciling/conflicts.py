"""Finds objects that would offer the same on one node. The younger one is refused."""

from collections.abc import Callable, Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Final

from deviceplugin.kit.log import few
from deviceplugin_operator.crd.catalogue import CUSTOM
from deviceplugin_operator.crd.specification import Variant, Wanted
from deviceplugin_operator.fleet import Fleet, NodeFacts
from deviceplugin_operator.observed import Object
from deviceplugin_operator.rollout import desired

_SHOWN: Final = 5

Covered = Callable[[str], Iterable[NodeFacts]]
"""Returns the nodes on which an object has the plugin now, by the name of the object."""
Other = tuple[Object, Wanted | None]
"""An object, and what it asks for; None while its settings are invalid."""


def conflict(
    owner: Object, wanted: Wanted, others: Iterable[Other], fleet: Fleet, covered: Covered
) -> str:
    """Return which older object has the same plugin or resource on which nodes, or an empty string.

    The kubelet would take the list of either plugin for the whole. An older object with invalid
    settings, or with a change that was not applied, keeps the nodes that it has.
    """
    for other, asked in sorted(others, key=lambda one: _age(one[0])):
        if _age(other) >= _age(owner):
            return ""
        name = other["metadata"]["name"]
        if asked is None:
            if other["spec"].get("plugin") == wanted.plugin != CUSTOM:
                selector = other["spec"].get("nodeSelector") or {}
                if nodes := [*_both(wanted, selector, fleet), *_own(wanted, covered(name))]:
                    return f"DevicePlugin {name} already covers nodes: {_few(nodes)}"
        elif found := _meeting(
            wanted, asked, fleet, covered if _is_behind(other) else lambda _: []
        ):
            return f"DevicePlugin {name} already {found}"
    return ""


def _age(found: Object) -> tuple[str, str]:
    metadata = found["metadata"]
    return metadata.get("creationTimestamp", ""), metadata["name"]


def _is_behind(other: Object) -> bool:
    """Return whether a revision that an object asks for is not applied."""
    revisions = (other.get("status") or {}).get("revisions") or ()
    return any(one.get("applied") != one.get("wanted") for one in revisions)


def _meeting(one: Wanted, other: Wanted, fleet: Fleet, covered: Covered) -> str:
    """Return what ``other`` already does on nodes of ``one``, with the nodes."""
    found: dict[str, list[NodeFacts]] = {}
    if any(_clash(one, mine, other, its) for mine in one.variants for its in other.variants):
        both = _both(one, desired.selector(other), fleet)
        for node in [*both, *_own(one, covered(other.name))]:
            mine, its = desired.variant(one, node), desired.variant(other, node)
            if clash := _clash(one, mine, other, its):
                found.setdefault(clash, []).append(node)
    for clash, nodes in found.items():
        return f"{clash} nodes: {_few(nodes)}"
    return ""


def _clash(one: Wanted, mine: Variant, other: Wanted, its: Variant) -> str:
    """Return how two plugins conflict on a node, or an empty string."""
    if one.plugin == other.plugin != CUSTOM:
        return "covers"
    for name in _offered(one, mine):
        for offered in _offered(other, its):
            if fnmatchcase(name, offered) or fnmatchcase(offered, name):
                return f"offers {min(name, offered, key=lambda one: one.endswith('*'))} on"
    return ""


def _offered(wanted: Wanted, variant: Variant) -> tuple[str, ...]:
    """Return the resources; if none are known of a plugin of others, the image stands for them."""
    return variant.resources or ((wanted.image,) if wanted.plugin == CUSTOM else ())


def _both(one: Wanted, selector: Mapping[str, str], fleet: Fleet) -> list[NodeFacts]:
    """Return the nodes of ``one`` that also have the labels of ``selector``."""
    own = desired.selector(one)
    if any(own.get(label, value) != value for label, value in selector.items()):
        return []
    return fleet.matching({**own, **selector})


def _own(one: Wanted, nodes: Iterable[NodeFacts]) -> list[NodeFacts]:
    """Return those of ``nodes`` that are also of ``one``."""
    own = desired.selector(one).items()
    return [node for node in nodes if own <= node.labels.items()]


def _few(nodes: Iterable[NodeFacts]) -> str:
    return listed([*dict.fromkeys(one.name for one in nodes)])


def listed(names: list[str]) -> str:
    """Return the first few of ``names``, and how many more there are."""
    return few(names, _SHOWN)
