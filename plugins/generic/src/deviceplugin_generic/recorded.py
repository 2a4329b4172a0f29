"""What ``deviceplugin record`` writes down of what the configuration selects."""

from collections.abc import Iterable
from typing import Final

from deviceplugin.kit import hardware
from deviceplugin_generic import DEFAULT_CONFIG
from deviceplugin_generic.discovery.beside import with_facts
from deviceplugin_generic.discovery.matching import of_group
from deviceplugin_generic.discovery.tree import Roots, Tree
from deviceplugin_generic.plugin import GenericSettings

_RECIPES: Final = {"tenstorrent": "tt_card_type"}
"""Attributes by subsystem that the README's entries select by, for nodes without a file yet."""


def read(tree: hardware.Tree) -> Iterable[str]:
    """Read what the selectors of the node's file ask for, and the recipes; open no device.

    Returns:
        The names of udev's properties that the file asks for.
    """
    own = Tree(Roots(tree.dev, tree.sysfs.root, tree.udev), sysfs=tree.sysfs)
    for subsystem, name in _RECIPES.items():
        for device in own.subsystem(subsystem):
            device.attribute(name)
    if not DEFAULT_CONFIG.exists():
        return set()
    properties = set[str]()
    for entry in GenericSettings.of_file(DEFAULT_CONFIG).device.configuration.entries:
        properties.update(entry.health.properties)
        for group in entry.groups:
            properties.update(name for one in group.selectors for name in one.properties)
            for match in of_group(group, own):
                with_facts(match, group, own)
    return properties
