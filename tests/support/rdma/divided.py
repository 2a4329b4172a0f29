"""Adds to a node's network cards what is made of their functions.

::

    devices/pci0000:3b/0000:3b:00.0/
      mlx5_core.sf.4/{sfnum,driver,net,infiniband,infiniband_verbs,mlx5_core.eth.4}
      vdpa0/{driver,vhost-vdpa-0/{dev,uevent}} virtio1/net/veth1
    bus/{auxiliary,vdpa}/devices /dev/vhost-vdpa-0

It is as the kernel's sources, the messages of its commits (mlx5: "SF, Add auxiliary device
support") and the libraries sriovnet and govdpa have it: read, and not recorded.
"""

from pathlib import Path

from rdma.tree import RdmaTree


class DividedTree(RdmaTree):
    """Cards with sub-functions and vDPA devices."""

    def sub(
        self,
        address: str,
        number: int | str,
        place: int,
        *,
        interface: str = "",
        rdma: str = "",
        driver: str = "mlx5_core.sf",
    ) -> str:
        """Have a sub-function with a number, as ``mlx5_core.sf.PLACE``; return its id."""
        path = f"{self.below(self.folders[address])}/mlx5_core.sf.{place}"
        values = {"sfnum": str(number)} if number != "" else {}
        folder = self.hardware.device(
            path, "auxiliary", driver=driver, attributes=values, is_bus=True
        )
        self.hardware.device(f"{path}/mlx5_core.eth.{place}", "auxiliary", is_bus=True)
        id_ = f"{address}-sf{number}"
        self.folders[id_] = folder
        if interface:
            self.interface(id_, interface)
        if rdma:
            self.rdma(folder, rdma)
        return id_

    def vdpa(self, address: str, name: str, driver: str, number: int = 0) -> Path:
        """Make a vDPA device of a function, by whose driver it has a node or an interface."""
        above = self.folders[address]
        path = f"{self.below(above)}/{name}"
        folder = self.hardware.device(path, "vdpa", driver=driver, is_bus=True)
        if driver == "vhost_vdpa":
            self.hardware.vhost_vdpa(folder, number)
        if driver == "virtio_vdpa":
            function = above.parent if "-sf" in address else above
            below = f"{self.below(function)}/virtio{number}"
            made = self.hardware.device(below, "virtio", driver="virtio_net", is_bus=True)
            (made / f"net/veth{number}").mkdir(parents=True)
        return folder
