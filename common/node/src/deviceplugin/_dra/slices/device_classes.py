"""DeviceClasses by which pods that ask for a resource get its devices through DRA."""

from collections.abc import Collection
from typing import Any

from deviceplugin._dra.naming import label


def device_classes(driver: str, resources: Collection[str]) -> list[dict[str, Any]]:
    """Return a class for each of ``resources``, whose devices ``driver`` offers.

    A class is called as the driver is, if it is the only one. On nodes where the device plugin
    offers the resource it has no effect.
    """
    return [
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "DeviceClass",
            "metadata": {
                "name": _name(driver, one, alone=len(resources) == 1),
                "labels": {"app.kubernetes.io/part-of": "device-plugins"},
            },
            "spec": {
                "extendedResourceName": one,
                "selectors": [{"cel": {"expression": _expression(driver, one)}}],
            },
        }
        for one in sorted(resources)
    ]


def _name(driver: str, resource: str, *, alone: bool) -> str:
    return driver if alone else f"{label(resource.partition('/')[2])}.{driver}"


def _expression(driver: str, resource: str) -> str:
    which = f'device.attributes["{driver}"].resource == "{resource}"'
    return f'device.driver == "{driver}" && {which}'
