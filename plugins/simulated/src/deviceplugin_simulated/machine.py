"""Devices from a pattern: what many devices have in common, and how they differ."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import deviceplugin as dp

MAX_COUNT: Final = 100_000
"""The most devices of one resource. A kubelet accepts a list of about 80,000 at most."""
MAX_ID_LENGTH: Final = 63
"""Characters, by the device plugin API."""
PLACEHOLDERS: Final = ("index", "id", "numa", "node")
_DOMAIN: Final = re.compile(
    r"(?=.{1,253}\Z)[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*", re.IGNORECASE
)
_NAME: Final = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")
_PLACEHOLDER: Final = re.compile(r"\{(\w+)\}")


@dataclass(frozen=True, kw_only=True)
class Pattern:
    """The devices of one resource.

    In every string, ``{index}`` is replaced by the number of the device, from 0, ``{id}`` by its
    id, ``{numa}`` by its NUMA node and ``{node}`` by the name of the node. Ids may use only the
    index and the node.
    """

    resource: str
    count: int
    id: str
    node: str = ""
    numa: Sequence[int] = ()
    """NUMA nodes. Consecutive blocks of devices are assigned to them."""
    nodes: Sequence[dp.DeviceNode] = ()
    mounts: Sequence[dp.Mount] = ()
    envs: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    cdi_names: Sequence[str] = ()
    attributes: Mapping[str, str] = field(default_factory=dict)

    def devices(self) -> Iterator[dp.Device]:
        """Yield the devices in the order of their indices."""
        for index in range(self.count):
            yield self._device(index)

    def _device(self, index: int) -> dp.Device:
        numa = self.numa[index * len(self.numa) // self.count] if self.numa else None
        values = {"index": str(index), "node": self.node}
        values |= {"id": fill(self.id, values), "numa": "" if numa is None else str(numa)}

        def filled(texts: Mapping[str, str]) -> dict[str, str]:
            return {fill(name, values): fill(text, values) for name, text in texts.items()}

        return dp.Device(
            values["id"],
            resource=self.resource,
            topology=None if numa is None else dp.Topology((numa,)),
            nodes=[
                dp.DeviceNode(
                    fill(one.host_path, values), fill(one.container_path, values), one.permissions
                )
                for one in self.nodes
            ],
            mounts=[
                dp.Mount(
                    fill(one.host_path, values), fill(one.container_path, values), one.read_only
                )
                for one in self.mounts
            ],
            envs=filled(self.envs),
            annotations=filled(self.annotations),
            cdi_names=[fill(name, values) for name in self.cdi_names],
            attributes=filled(self.attributes),
        )


def fill(text: str, values: Mapping[str, str]) -> str:
    """Return ``text`` with each ``{name}`` of ``values`` replaced. Other braces stay."""
    if "{" not in text:
        return text
    return _PLACEHOLDER.sub(lambda found: values.get(found[1], found[0]), text)


def id_problem(device_id: str) -> str:
    """Return why a device cannot have this id, or an empty string."""
    if not device_id:
        return "is empty"
    if len(device_id) > MAX_ID_LENGTH:
        return f"has {len(device_id)} characters, of at most {MAX_ID_LENGTH}"
    if not device_id.isprintable() or device_id.strip() != device_id:
        return "has control characters or blanks at an end"
    return ""


def annotation_problem(name: str) -> str:
    """Return why an annotation cannot have this name, or an empty string.

    The length is not checked, because container runtimes accept longer names than pods.
    """
    domain, slash, last = name.rpartition("/")
    if "/" in domain:
        return "has more than one slash"
    if slash and not _DOMAIN.fullmatch(domain):
        return "has no domain before the slash, such as example.com"
    if not _NAME.fullmatch(last):
        return "must be letters, digits, '-', '_' and '.', with a letter or digit at both ends"
    return ""
