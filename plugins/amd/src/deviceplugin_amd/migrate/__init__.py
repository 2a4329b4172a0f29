"""What ``deviceplugin migrate`` knows of AMD's plugin: flags, Helm values, and its operator."""

from collections.abc import Mapping
from dataclasses import replace

from deviceplugin.kit.migration import Migration, Workload
from deviceplugin_amd.migrate import chart, operator, plugin


def migrate(workload: Workload) -> Migration | None:
    """Return what becomes of AMD's plugin; None for anything else.

    Raises:
        ConfigError: A value is invalid, or there is no plugin for containers.
    """
    given = _unwrapped(workload)
    found = (peer.migrate(given) for peer in (plugin, chart, operator))
    return next((one for one in found if one is not None), None)


def _unwrapped(workload: Workload) -> Workload:
    """Return the values of AMD's chart among those of a chart that has it as a dependency."""
    values = workload.values or {}
    for name in (chart.CHART, operator.CHART):
        inside = values.get(name)
        if isinstance(inside, Mapping) and not workload.kind:
            for key in {*values} - {name}:
                workload.drop("not taken over: of another chart", key)
            root, place = (*workload.root, name), f"{workload.place}: {name}"
            return replace(workload, values=inside, root=root, place=place)
    return workload
