"""Machines with network cards, as somebody has written them down.

Recorded: of DGX_H100, in NVIDIA's user guide, interfaces, RDMA names, and the CPU and GPU of each
card; of CONNECTX6 (k8snetworkplumbingwg/sriov-network-device-plugin#586) addresses and models; of
E810 (k8snetworkplumbingwg/sriov-network-operator#329) models, drivers, the port's name, the first
functions' addresses, and how many each resource has: 4, 2 and 2.

Made after the kernel's sources and documentation: the rest, such as numbers of device nodes, IOMMU
groups, states of ports, bridges, and the host's own cards.
"""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class Port:
    """A function of a card."""

    address: str
    numbers: str
    """Vendor and model."""
    driver: str
    interface: str = ""
    rdma: str = ""
    mad: bool = True
    """Whether the RDMA device can do management datagrams, and has nodes for them."""
    link: str = "ether"
    numa: int = 0
    above: str = ""
    """What is between it and the PCI root, as in sysfs."""
    group: str = ""
    """IOMMU group."""
    virtual: tuple["Port", ...] = ()
    """Virtual functions, in the order of their numbers."""


@dataclass(frozen=True)
class Machine:
    """What the generator needs."""

    ports: tuple[Port, ...]
    default_route: str = ""
    """Interface of the host's default route."""
    gpus: tuple[tuple[str, str, int], ...] = ()
    """Address, what is above it, and NUMA node."""

    @property
    def addresses(self) -> tuple[str, ...]:
        """The addresses of all functions."""
        return tuple(one.address for port in self.ports for one in (port, *port.virtual))


def _dgx(bus: str, rdma: int, gpu: int) -> tuple[Port, tuple[str, str, int]]:
    """Return a card of a DGX H100 and the GPU that is behind the same switch."""
    number, node = int(bus, 16), int(gpu > 3)
    above = f"0000:{number - 3:02x}:00.0/0000:{number - 2:02x}:0"
    port = Port(
        f"0000:{bus}:00.0",
        "15b3:1021",
        "mlx5_core",
        f"ibp{number}s0",
        f"mlx5_{rdma}",
        link="infiniband",
        numa=node,
        above=f"{above}0.0",
    )
    return port, (f"0000:{number + 3:02x}:00.0", f"{above}1.0", node)


_DGX: Final = [
    _dgx(*one)
    for one in (
        *(("18", 0, 0), ("40", 3, 1), ("4f", 4, 2), ("5e", 5, 3)),
        *(("9a", 6, 4), ("c0", 9, 5), ("ce", 10, 6), ("dc", 11, 7)),
    )
]
DGX_H100: Final = Machine(
    (
        *(port for port, _ in _DGX),
        Port("0000:37:00.0", "8086:1563", "ixgbe", "eno3", numa=0),
    ),
    "eno3",
    tuple(gpu for _, gpu in _DGX),
)
"""InfiniBand."""


def _connectx(bus: str, first: int, names: tuple[str, ...], numa: int) -> Port:
    numbers = "15b3:101b"
    virtual = tuple(
        Port(
            f"0000:{bus}:00.{number + 1}",
            "15b3:101c",
            "mlx5_core",
            f"{names[0]}v{number}",
            f"mlx5_{first + 1 + number}",
            numa=numa,
        )
        for number in range(4)
    )
    address = f"0000:{bus}:00.0"
    return Port(
        address, numbers, "mlx5_core", names[0], f"mlx5_{first}", numa=numa, virtual=virtual
    )


CONNECTX6: Final = Machine(
    (
        _connectx("05", 0, ("ens1np0",), 0),
        _connectx("d2", 5, ("ens8np0",), 1),
        Port("0000:18:00.0", "14e4:165f", "tg3", "eno1"),
    ),
    "eno1",
)
"""RoCE with virtual functions."""
E810: Final = Machine(
    (
        *(
            Port(f"0000:51:00.{number}", "8086:1591", "ice", f"enp81s0f{number}", numa=0)
            for number in range(3)
        ),
        Port(
            "0000:51:00.3",
            "8086:1591",
            "ice",
            "enp81s0f3",
            "irdma3",
            mad=False,
            virtual=tuple(
                Port(
                    f"0000:51:0d.{number}",
                    "8086:1889",
                    "iavf" if number < 6 else "vfio-pci",
                    f"enp81s0f3v{number}" if number < 6 else "",
                    group=str(180 + number),
                )
                for number in range(8)
            ),
        ),
    ),
    "enp81s0f0",
)
"""Ethernet, with virtual functions of which some are for DPDK."""
SAMPLE: Final = Machine(
    (
        Port(
            "0000:3b:00.0",
            "15b3:101d",
            "mlx5_core",
            "ens1f0np0",
            "mlx5_0",
            virtual=(
                Port("0000:3b:00.2", "15b3:101e", "mlx5_core", "ens1f0v0", "mlx5_2"),
                Port("0000:3b:00.3", "15b3:101e", "mlx5_core", "ens1f0v1", "mlx5_3"),
                Port("0000:3b:00.4", "15b3:101e", "vfio-pci", group="42"),
                Port("0000:3b:00.5", "15b3:101e", "vfio-pci", group="43"),
            ),
        ),
        Port(
            "0000:af:00.0",
            "15b3:101b",
            "mlx5_core",
            "ibs2",
            "mlx5_1",
            link="infiniband",
            numa=1,
        ),
        Port("0000:5e:00.0", "8086:1592", "ice", "ens3", "irdma0", mad=False),
        Port("0000:18:00.0", "14e4:165f", "tg3", "eno1"),
    ),
    "eno1",
)
"""No machine that anybody has: a bit of everything, and quick to change."""
