"""GPUs of the node that are not advertised, because they cannot be identified."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from deviceplugin_gpu.host import pci_bus

_UNLISTED: Final = "is not known to NVML: it is lost, or hidden from this plugin"
_DRIVERLESS: Final = "has no driver"
_ADVICE: Final = "see the kernel's log: dmesg | grep NVRM"


@dataclass(frozen=True, slots=True)
class UnidentifiedGpu:
    """A GPU without a readable UUID. Its NVML index, its PCI address or both are known."""

    problem: str
    index: int | None = None
    pci: str = ""

    def __str__(self) -> str:
        index = "" if self.index is None else f" {self.index}"
        return f"GPU{index}{self.pci and f' at {self.pci}'} {self.problem}"


def unidentified(
    unread: Sequence[tuple[int, str]], cards: Mapping[str, str], named: Collection[str]
) -> tuple[UnidentifiedGpu, ...]:
    """Return GPUs that NVML cannot identify, and those that only the PCI bus has.

    Args:
        unread: Index and problem of the former, in NVML's order, which is that of addresses.
        cards: The kernel driver of each GPU on the PCI bus, by address, in order.
        named: PCI addresses of all identified GPUs. An empty one could be any.
    """
    absent = {} if "" in named else {a: b for a, b in cards.items() if a not in named}
    lost = [address for address, driver in absent.items() if driver == pci_bus.NVIDIA]
    idle = [address for address, driver in absent.items() if not driver]
    if len(lost) == len(unread):
        pairs = zip(unread, lost, strict=True)
        found = [UnidentifiedGpu(f"cannot be read: {why}", index, at) for (index, why), at in pairs]
    elif len(lost) < len(unread):
        found = [UnidentifiedGpu(f"cannot be read: {why}", index) for index, why in unread]
    else:
        said = "; ".join(dict.fromkeys(why for _, why in unread))
        problem = f"cannot be read: {said}" if said else f"{_UNLISTED}: {_ADVICE}"
        found = [UnidentifiedGpu(problem, pci=address) for address in lost]
    return (
        *found,
        *(UnidentifiedGpu(f"{_DRIVERLESS}: {_ADVICE}", pci=address) for address in idle),
    )
