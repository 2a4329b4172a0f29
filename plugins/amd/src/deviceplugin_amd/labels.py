"""Node labels about GPUs: those of AMD's node labeller, except those that need libdrm."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from deviceplugin.kit.labels import clean, key
from deviceplugin.kit.sysfs import Sysfs
from deviceplugin_amd import kfd
from deviceplugin_amd.gpus import DRIVER
from deviceplugin_amd.snapshot import Unit

_DOMAIN: Final = "amd.com"
_OLD_DOMAIN: Final = "beta.amd.com"
_VERSIONS: Final = {"driver-version": "version", "driver-src-version": "srcversion"}


def labels(units: Sequence[Unit], sysfs: Sysfs) -> dict[str, str]:
    """Return all labels; none without GPUs.

    If all units have the same value, it is the value of a label. Otherwise each value has a label
    with the number of units. The older domain always has these too.
    """
    if not units:
        return {}
    found = dict(_of_node(units, sysfs))
    facts: dict[str, list[str]] = {}
    for unit in units:
        for kind, value in _facts(unit, sysfs):
            facts.setdefault(kind, []).append(value)
    for kind, values in facts.items():
        found.update(_counted(kind, values))
    return found


def _of_node(units: Iterable[Unit], sysfs: Sysfs) -> Iterator[tuple[str, str]]:
    for kind, name in _VERSIONS.items():
        if text := sysfs.text(f"module/{DRIVER}/{name}"):
            yield key(_DOMAIN, f"gpu.{kind}"), clean(text)
    gpus = {unit.gpu for unit in units}
    styles = {str(gpu.style) for gpu in gpus}
    if len(styles) == 1 and (style := styles.pop()):
        yield key(_DOMAIN, "gpu.compute-memory-partition"), style
    compute, memory = (any(gpu.can_divide[what] for gpu in gpus) for what in (0, 1))
    yield key(_DOMAIN, "gpu.compute-partitioning-supported"), str(compute).lower()
    yield key(_DOMAIN, "gpu.memory-partitioning-supported"), str(memory).lower()


def _facts(unit: Unit, sysfs: Sysfs) -> Iterator[tuple[str, str]]:
    yield "device-id", unit.gpu.product
    if unit.gpu.name:
        yield "product-name", clean(unit.gpu.name, "_")
    node = unit.node
    memory = kfd.memory(sysfs, node) if node else 0
    if unit.number is None:
        memory = memory or unit.gpu.memory
    if memory:
        yield "vram", f"{round((memory >> 20) / 1024)}G"
    if node is None:
        return
    simds, each = node.get("simd_count"), node.get("simd_per_cu")
    yield "simd-count", str(simds)
    if each:
        yield "cu-count", str(simds // each)


def _counted(kind: str, values: Sequence[str]) -> Iterator[tuple[str, str]]:
    counts = Counter(values)
    name = f"gpu.{kind}"
    for value, count in counts.items():
        yield key(_OLD_DOMAIN, f"{name}.{value}"), str(count)
        if len(counts) > 1:
            yield key(_DOMAIN, f"{name}.{value}"), str(count)
    if len(counts) == 1:
        yield key(_DOMAIN, name), values[0]
        yield key(_OLD_DOMAIN, name), values[0]
