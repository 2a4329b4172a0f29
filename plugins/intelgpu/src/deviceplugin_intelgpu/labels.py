"""Labels of the node about its GPUs: those of Intel's rules for Node Feature Discovery."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

from deviceplugin.kit.labels import key
from deviceplugin.kit.pci import Function
from deviceplugin_intelgpu.gpus import product
from deviceplugin_intelgpu.settings import DOMAIN

_PRESENT: Final = "intel.feature.node.kubernetes.io/gpu"
_PRODUCTS: Final[Mapping[str, str]] = {
    "0bda": "Max_1100",
    "0bd5": "Max_1550",
    "56c0": "Flex_170",
    "56c1": "Flex_140",
}
_FAMILIES: Final[Mapping[str, str]] = {
    model: family
    for family, models in {
        "Max_Series": "0bd0 0bd5 0bd6 0bd7 0bd9 0bda 0bdb",
        "Flex_Series": "56c0 56c1",
        "A_Series": "5690 5691 5692 5693 5694 5695 5696 5697 56a0 56a1 56a2 56a3 56a4 56a5 56a6 "
        "56b0 56b1 56b2 56b3 56ba 56bb 56bc 56bd",
    }.items()
    for model in models.split()
}


def labels(functions: Iterable[Function]) -> dict[str, str]:
    """Return all labels, none without GPUs. As in the rules, each PCI function counts."""
    kinds = Counter((one.pci_class[:4], product(one)) for one in functions)
    if not kinds:
        return {}
    found = {_PRESENT: "true"}
    for (kind, model), count in kinds.items():
        found[key(DOMAIN, "device-id", f"{kind}-{model}", "count")] = str(count)
        found[key(DOMAIN, "device-id", f"{kind}-{model}", "present")] = "true"
        if model in _FAMILIES:
            found[key(DOMAIN, "family")] = _FAMILIES[model]
        if model in _PRODUCTS:
            found[key(DOMAIN, "product")] = _PRODUCTS[model]
            found[key(DOMAIN, "device", "count")] = str(count)
    return found
