"""The devices of each plugin: what there must be for any to be found."""

from collections.abc import Iterator
from functools import partial
from typing import Final

from deviceplugin.tools.doctor._finding import Check, Finding, failure, ok, warning
from deviceplugin.tools.doctor._node import Node
from deviceplugin.tools.doctor.checks import _generic
from deviceplugin.tools.doctor.checks._hardware_table import HARDWARE, Hardware, Need


def _look(hardware: Hardware, node: Node) -> Iterator[Finding]:
    cards = list(_cards(hardware, node))
    signs = [sign for sign in hardware.signs if node.exists(sign)]
    if not cards and not signs:
        yield _nothing(hardware, node)
        return
    told = f"{len(cards)} on the PCI bus" if cards else f"/{signs[0]} exists"
    yield ok(hardware.what, told)
    unmet = [need for need in hardware.needs if not any(map(node.exists, need.any_of))]
    # What comes after a link of the chain that is missing is missing because of it.
    chain = [need for need in unmet if need.follows][:1]
    for need in [*chain, *(need for need in unmet if not need.follows)]:
        yield _missing(hardware, need, node, cards)
    if not unmet:
        yield ok(hardware.what, f"there are {', '.join(need.what for need in hardware.needs)}")


def _cards(hardware: Hardware, node: Node) -> Iterator[str]:
    """Yield the PCI address of each card, with the name of the driver that has it."""
    for path in sorted(node.matches("sys/bus/pci/devices/*")):
        relative = path.relative_to(node.root)
        vendor, kind = node.peek(relative / "vendor"), node.peek(relative / "class")
        if vendor == hardware.vendor and kind.startswith(hardware.pci_class):
            link = path / "driver"
            driver = link.readlink().name if link.is_symlink() else "no driver"
            yield f"{path.name} ({driver})"


def _nothing(hardware: Hardware, node: Node) -> Finding:
    if hardware.plugin not in node.plugins:
        return ok(hardware.what, "none in sight")
    return failure(
        hardware.what,
        f"none in sight: no PCI device of vendor {hardware.vendor} and class "
        f"{hardware.pci_class}, and no /{', no /'.join(hardware.signs)}",
        means=f"the {hardware.plugin} plugin advertises 0 devices.",
        do="lspci -nn shows what the machine has; a virtual machine needs the card passed through. "
        "In a pod, mount /sys and /dev of the host.",
    )


def _missing(hardware: Hardware, need: Need, node: Node, cards: list[str]) -> Finding:
    places = need.looked_for or f"for {', '.join(f'/{path}' for path in need.any_of)}"
    found = f"no {need.what}; looked {places}"
    rivals = [name for name in hardware.rivals if node.exists(f"sys/module/{name}")]
    if need.is_driver and rivals:
        found += f"; loaded instead: {', '.join(rivals)}"
    if need.is_driver and cards:
        found += f"; cards: {', '.join(cards)}"
    make = failure if need.needed else warning
    return make(hardware.what, found, means=need.means, do=need.do)


CHECKS: Final = (
    *(
        Check(each.plugin, f"{each.what}: driver, device files, libraries", partial(_look, each))
        for each in HARDWARE
    ),
    _generic.CHECK,
)
