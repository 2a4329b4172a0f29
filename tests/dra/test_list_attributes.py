"""Attributes with several values, from the plugin to the scheduler of a simulated cluster."""

import threading
from pathlib import Path

import pytest

from cluster.dra_objects import DRIVER, RESOURCE, Simulated
from deviceplugin import Device, Topology
from deviceplugin._attribution.ownership import OfferState
from deviceplugin._dra.slices.attributes import NUMA_NODE, Describer
from deviceplugin._dra.slices.pools import Offers, PoolCatalogue, Site
from deviceplugin._dra.slices.publisher import Publisher
from deviceplugin.apiserver import ResourceSlices
from patience import eventually


def quarters(sysfs: Path) -> Path:
    """Make a sysfs of two sockets with two NUMA nodes each."""
    for node in range(4):
        folder = sysfs / f"devices/system/node/node{node}"
        folder.mkdir(parents=True)
        far = (10 if one == node else 12 if one // 2 == node // 2 else 32 for one in range(4))
        (folder / "distance").write_text(" ".join(map(str, far)))
        (folder / "cpulist").write_text(str(node))
        place = sysfs / f"devices/system/cpu/cpu{node}/topology"
        place.mkdir(parents=True)
        (place / "physical_package_id").write_text(str(node // 2))
    (sysfs / "devices/system/node/online").write_text("0-3")
    return sysfs


@pytest.mark.parametrize("gate", [True, False])
def test_devices_of_one_socket_match_where_lists_are_kept(tmp_path: Path, *, gate: bool) -> None:
    near = {"gpu": 0, "nic": 1, "far": 2}
    states = {
        name: OfferState(Device(name, topology=Topology([numa])), True, "", "")
        for name, numa in near.items()
    }
    offers: Offers = {RESOURCE: states}
    with Simulated(feature_gates={"DRAListTypeAttributes": gate}) as make:
        describer = Describer(DRIVER, quarters(tmp_path), lists=True)
        published = threading.Event()
        publisher = Publisher(
            ResourceSlices(make.api, DRIVER, "n1"),
            Site(DRIVER, "n1"),
            catalogue=PoolCatalogue(describer, "n1", "no-schedule"),
            offers=lambda: offers,
            published=lambda _keys: published.set(),
        )
        thread = threading.Thread(target=publisher.run)
        thread.start()
        try:
            eventually(published.is_set, "the slices")
        finally:
            publisher.stop()
            thread.join()
        make.device_class()
        for name, pair in (("ab", ("gpu", "nic")), ("ac", ("gpu", "far"))):
            requests = [
                {
                    "name": one,
                    "exactly": {
                        "deviceClassName": "gopher",
                        "selectors": [
                            {"cel": {"expression": f'device.attributes["{DRIVER}"].id == "{one}"'}}
                        ],
                    },
                }
                for one in pair
            ]
            make.claim_of(name, requests, constraints=[{"matchAttribute": NUMA_NODE}])
            make.pod_with(name, name)
            make.settle()
            if make.node_of(name):
                make.end(name)
        assert ("n1" if gate else "", "") == (make.node_of("ab"), make.node_of("ac"))
