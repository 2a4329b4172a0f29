"""What becomes of the values of AMD's chart for its plugin."""

from collections.abc import Mapping
from typing import Final

from deviceplugin.kit.migration import Migration, Setting, Workload
from deviceplugin_amd.migrate.plugin import NAME, add_labels, migration

DROPPED: Final[Mapping[tuple[str, ...], str]] = {
    ("dp", "image"): "",
    ("dp", "resources"): "not taken over; ours has its own",
    ("dp", "updateStrategy"): "not taken over; ours is RollingUpdate, 10% of the nodes at a time",
    ("securityContext",): "",
    ("namespace",): "not taken over; ours has one of its own",
    ("node-feature-discovery",): "values of Node Feature Discovery, which is not deployed here",
}
"""Keys, and why they are not taken over; "" if they are ours to choose."""
CHART: Final = "amd-gpu"
"""Its name."""
POD: Final = ("tolerations", "imagePullSecrets")
"""Keys that are those of a pod."""
SWITCHES: Final = (("labeller", "enabled"), ("nfd", "enabled"), ("node_selector_enabled",))
OTHERS: Final = (("lbl",), ("node_selector",))
"""Other keys."""
SIGNS: Final = frozenset({"dp", "lbl", *(path[0] for path in SWITCHES), "node_selector"})
"""Keys that show whose values they are."""
_IGNORED: Final = ("nodeSelector", "affinity", "runtimeClassName")
"""What other charts have, and this one ignores."""


def migrate(workload: Workload) -> Migration | None:
    """Return what becomes of the values; None for anything else. Raise ``ConfigError``."""
    if not _is_chart(workload):
        return None
    result = migration(None)
    _note_keys(workload, result)
    if _is_on(workload, "labeller", "enabled"):
        add_labels("labeller.enabled", result)
        workload.drop("of the labeller; not taken over", "lbl")
    else:
        workload.key("lbl")
    if has_nfd := _is_on(workload, "nfd", "enabled"):
        result.differs(
            "nfd.enabled",
            "Node Feature Discovery and its labels go with the release: install it by itself "
            "before, if they are needed",
        )
        result.removed.append("Node Feature Discovery, and with it its labels of nodes")
    _add_selector(workload, result, has_nfd=has_nfd)
    return result


def _note_keys(workload: Workload, result: Migration) -> None:
    for path, why in DROPPED.items():
        workload.drop(why, *path) if why else workload.key(*path)
    for key in POD:
        if given := workload.key(key):
            result.pod[key] = given.value
    for key in _IGNORED:
        if workload.has(key):
            result.pod[key] = None
            result.differs(key, "not taken over: their chart has no such key")


def _is_chart(workload: Workload) -> bool:
    values = workload.values
    if values is None or workload.kind or workload.image or not SIGNS & values.keys():
        return False
    plugin = values.get("dp")
    image = workload.has("dp", "image", "repository") if isinstance(plugin, Mapping) else None
    return image is None or str(image.value).endswith(NAME)


def _add_selector(workload: Workload, result: Migration, *, has_nfd: bool) -> None:
    selector = workload.key("node_selector")
    # Before node_selector_enabled, nfd.enabled decided.
    given = workload.has("node_selector_enabled")
    is_enabled = _is_on(workload, "node_selector_enabled") if given else has_nfd
    if selector and is_enabled and not has_nfd:
        result.pod["nodeSelector"] = selector.value
    elif selector or is_enabled:
        why = "node_selector_enabled is not true"
        if is_enabled:
            why = "its labels go with nfd.enabled" if has_nfd else "it is the chart's own"
        result.differs(
            "node_selector", f"not taken over, because {why}: ours is idle on nodes without a GPU"
        )


def _is_on(workload: Workload, *path: str) -> bool:
    given = workload.key(*path) or Setting("", value=False)
    if not isinstance(given.value, bool):
        raise given.wrong("true or false")
    return given.value
