"""Which devices of a plugin a selector chooses, as a scheduler sees them in slices."""

from collections.abc import Iterable, Mapping
from pathlib import Path

import yaml

import deviceplugin as dp
from deviceplugin._dra.slices.attributes import Describer
from deviceplugin_testing.simulator._control_plane.rules.slices import check_slice
from deviceplugin_testing.simulator._control_plane.selectors import Candidate, parse_selector

ROOT = Path(__file__).parents[3]
WORDS = {
    "THEIRS": "device.attributes['VENDOR']",
    "AMOUNTS": "device.capacity['VENDOR']",
    "STANDARD": "device.attributes['resource.kubernetes.io']",
}


def candidates(
    devices: Iterable[dp.Device], driver: str, sysfs: Path = Path("/nowhere")
) -> dict[str, Candidate]:
    """Return devices as slices have them, by id. Nothing may be cut, also of shared ones."""
    found = {}
    pool = {"name": "n", "generation": 1, "resourceSliceCount": 1}
    for device in devices:
        for shares in (2, 0):
            body, cuts = Describer(driver, sysfs).describe(device, device.resource, shares)
            assert [] == cuts
            one = {"name": "x", **body}
            spec = {"driver": driver, "nodeName": "n", "pool": pool, "devices": [one]}
            assert [] == [*check_slice({"spec": spec})]
            found[device.id] = Candidate(driver, one)
    return found


def chosen(among: Mapping[str, Candidate], expression: str) -> set[str]:
    """Return the ids of the devices that ``expression`` selects, in which words stand for more."""
    for word, text in WORDS.items():
        expression = expression.replace(word, text)
    driver = next(one.driver for one in among.values())
    selects = parse_selector(expression.replace("VENDOR", driver))
    return {name for name, candidate in among.items() if selects(candidate)}


def shipped(plugin: str) -> dict[str, str]:
    """Return the selectors of the DeviceClasses that are shipped for a plugin, by name."""
    file = ROOT / f"deployments/components/{plugin}-device-class/deviceclass.yaml"
    return {
        one["metadata"]["name"]: one["spec"]["selectors"][0]["cel"]["expression"]
        for one in yaml.safe_load_all(file.read_text())
    }
