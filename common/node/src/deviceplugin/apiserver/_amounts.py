"""Devices in the amounts of a node or a container, such as ``status.allocatable``."""

import contextlib
from collections.abc import Mapping

from deviceplugin._config.quantities import whole_number


def devices_in(amounts: Mapping[str, object]) -> dict[str, int]:
    """Return how many devices of each resource there are.

    Resources of Kubernetes itself, such as ``memory`` and ``hugepages-2Mi``, are not devices, and
    an amount that is not a whole number is ignored. The API server writes round numbers with a
    suffix: 2000 devices are ``2k``.
    """
    found: dict[str, int] = {}
    for name, amount in amounts.items():
        domain, slash, _ = name.partition("/")
        if slash and domain != "kubernetes.io":
            with contextlib.suppress(ValueError):
                found[name] = whole_number(str(amount))
    return found
