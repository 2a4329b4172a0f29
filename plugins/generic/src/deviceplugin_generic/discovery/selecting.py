"""Which devices a selector selects."""

from collections.abc import Mapping

from deviceplugin.kit import pci
from deviceplugin.kit.hardware import Device
from deviceplugin_generic.configuration import globs
from deviceplugin_generic.configuration.entries import Selector
from deviceplugin_generic.discovery.tree import Tree


def is_selected(device: Device, selector: Selector, tree: Tree) -> bool:
    """Return whether a device of its subsystem matches a selector.

    If it is unknown what the device can do, it matches, and is not excluded.
    """
    return (
        _meets(device, selector)
        and not any(_is_excluded(device, one, tree) for one in selector.excluded)
        and (not selector.abilities or tree.can(device, selector.abilities) is not False)
    )


def _is_excluded(device: Device, selector: Selector, tree: Tree) -> bool:
    return _meets(device, selector) and (
        not selector.abilities or tree.can(device, selector.abilities) is True
    )


def _meets(device: Device, selector: Selector) -> bool:
    numbers = ((selector.vendor, 0), (selector.product, 1))
    return (
        all(wanted in {None, device.number(which)} for wanted, which in numbers)
        and _fits(device.name, selector.name)
        and (not selector.driver or _fits(device.driver, selector.driver))
        and (not selector.serial or _fits(device.serial, selector.serial))
        and _pci_class(device).startswith(selector.pci_class)
        and (not selector.link or any(globs.matches(x, selector.link) for x in device.links))
        and has_properties(device, selector.properties)
        and all(
            _are_as(pattern, [text for one in device.line if (text := one.attribute(name))])
            for name, pattern in selector.attributes.items()
        )
    )


def has_properties(device: Device, wanted: Mapping[str, str | None]) -> bool:
    """Return whether udev has these properties of the device, with values that match.

    A property whose pattern is None must be absent.
    """
    known = device.properties
    return all(
        _are_as(pattern, [known[name]] if name in known else []) for name, pattern in wanted.items()
    )


def _are_as(pattern: str | None, texts: list[str]) -> bool:
    return not texts if pattern is None else any(_fits(text, pattern) for text in texts)


def _fits(text: str, pattern: str) -> bool:
    return not pattern or globs.matches(text, pattern)


def _pci_class(device: Device) -> str:
    function = pci.of(device)
    return function.pci_class if function else ""
