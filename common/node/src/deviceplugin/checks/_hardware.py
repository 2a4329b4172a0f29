"""Checking for hardware on a node, and for what it needs to be usable."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from deviceplugin.checks._finding import Finding, failure, ok, warning
from deviceplugin.checks._node import Node


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """A requirement of the hardware: without it there are no devices."""

    what: str
    means: str
    """The consequence if it is missing."""
    do: str
    any_of: tuple[str, ...] = ()
    """Patterns below the node's root. One match is enough."""
    missing: Callable[[Node], str] | None = None
    """Called instead of using the patterns. It returns where it searched without success, or an
    empty string if the requirement is met."""
    follows: bool = True
    """Whether it can be met only if the requirements before it are."""
    is_driver: bool = False

    def sought(self, node: Node) -> str:
        """Return where it was searched for without success; empty if it is there."""
        if self.missing is not None:
            return self.missing(node)
        if any(map(node.exists, self.any_of)):
            return ""
        return f"for {', '.join(f'/{path}' for path in self.any_of)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Hardware:
    """A kind of card on the PCI bus, with its driver."""

    plugin: str
    """The name of the check. With ``--plugin`` and this name, the hardware must be there."""
    what: str
    vendor: str
    """The vendor id as in sysfs."""
    pci_class: str | tuple[str, ...]
    """The beginning of the class as in sysfs, or several of which one must match."""
    signs: tuple[str, ...]
    """Patterns that show, without the PCI bus, that the hardware is here."""
    needs: tuple[Need, ...]
    rivals: tuple[str, ...] = ()
    """Patterns of kernel modules that can claim the hardware in place of the right one."""

    def look(self, node: Node) -> Iterator[Finding]:
        """Yield whether the hardware is here, and which of its requirements are not met."""
        cards = dict(self._cards(node))
        signs = [sign for sign in self.signs if node.exists(sign)]
        if not cards and not signs:
            yield self._nothing(node)
            return
        yield ok(self.what, f"{len(cards)} on the PCI bus" if cards else f"/{signs[0]} exists")
        unmet = [(need, places) for need in self.needs if (places := need.sought(node))]
        # Requirements after the first missing one of the chain are missing because of it.
        chain = [each for each in unmet if each[0].follows][:1]
        for need, places in [*chain, *(each for each in unmet if not each[0].follows)]:
            yield self._missing(need, places, node, cards)
        if not unmet:
            yield ok(self.what, f"there are {', '.join(need.what for need in self.needs)}")
        if any(cards.values()) and not any(need.is_driver for need, _ in unmet):
            yield from self._idle(node, cards)

    def _idle(self, node: Node, cards: Mapping[str, str]) -> Iterator[Finding]:
        """Yield the cards without a driver, while others have one."""
        for address, driver in cards.items():
            is_virtual = node.exists(f"sys/bus/pci/devices/{address}/physfn")
            if not (driver or is_virtual):  # virtual functions wait for virtual machines
                yield warning(
                    address,
                    "has no driver, and others have",
                    means=f"the {self.plugin} plugin does not offer it.",
                    do=f"see why its driver gave it up, or was not bound: dmesg | grep {address}",
                )

    def _cards(self, node: Node) -> Iterator[tuple[str, str]]:
        """Yield the PCI address of each card, with the name of its driver; empty if it has none."""
        for path in sorted(node.matches("sys/bus/pci/devices/*")):
            relative = path.relative_to(node.root)
            vendor, kind = node.peek(relative / "vendor"), node.peek(relative / "class")
            if vendor == self.vendor and kind.startswith(self.pci_class):
                link = path / "driver"
                yield path.name, link.readlink().name if link.is_symlink() else ""

    def _nothing(self, node: Node) -> Finding:
        if self.plugin not in node.plugins:
            return ok(self.what, "none found")
        kinds = (self.pci_class,) if isinstance(self.pci_class, str) else self.pci_class
        return failure(
            self.what,
            f"none found: no PCI device of vendor {self.vendor} and class "
            f"{' or '.join(kinds)}, and no /{', no /'.join(self.signs)}",
            means=f"the {self.plugin} plugin advertises 0 devices.",
            do="lspci -nn shows what the machine has; a virtual machine needs the card passed "
            "through. In a pod, mount /sys and /dev of the host.",
        )

    def _missing(self, need: Need, places: str, node: Node, cards: Mapping[str, str]) -> Finding:
        found = f"no {need.what}; looked {places}"
        loaded = (path for one in self.rivals for path in node.matches(f"sys/module/{one}"))
        rivals = sorted(path.name for path in loaded)
        if need.is_driver and rivals:
            found += f"; loaded instead: {', '.join(rivals)}"
        if need.is_driver and cards:
            shown = (f"{address} ({driver or 'no driver'})" for address, driver in cards.items())
            found += f"; cards: {', '.join(shown)}"
        return failure(self.what, found, means=need.means, do=need.do)
