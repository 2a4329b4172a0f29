"""What is valid in a configuration and may still not be what was meant."""

import posixpath
from collections.abc import Iterator
from typing import Final

from deviceplugin_generic.configuration.entries import Configuration, Group

_DRM: Final = "/dev/dri/"


def cautions(configuration: Configuration) -> Iterator[str]:
    """Yield a sentence for each."""
    for entry in configuration.entries:
        for path, inside in (pair for group in entry.groups for pair in _renamed(group)):
            yield (
                f"{entry.name}: {path} is {inside} in the container: libdrm looks the kernel's own "
                "name up in sysfs, so that VA-API and OpenGL do not find the device there; leave "
                "mountPath out"
            )
        shares = max((one.count for one in entry.groups if "vfio" in one.nodes), default=1)
        if shares > 1:
            yield (
                f"{entry.name}: count is {shares}: an IOMMU group has one holder, so that only one "
                "share of a device of VFIO can be used; leave count out"
            )


def _renamed(group: Group) -> Iterator[tuple[str, str]]:
    """Yield DRM nodes whose names in the container are others, each with that."""
    given = [(spec.path, spec.mount_path) for spec in group.paths if not spec.is_mount]
    if group.select and "drm" in (group.select.subsystem, *group.nodes):
        given.append((f"{_DRM}{group.select.name or '*'}", group.mount_path))
    for path, inside in given:
        names = {posixpath.basename(one) for one in (path, inside)}
        if path.startswith(_DRM) and not inside.endswith("/") and inside and len(names) > 1:
            yield path, inside
