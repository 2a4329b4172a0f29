"""The two plugins: how they are called, and how they read their files."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from deviceplugin.kit.configuration import (
    Place,
    anything,
    of_text,
    resource_name_problem,
    without_nulls,
)
from deviceplugin.kit.migration import Migration, Setting, checked
from deviceplugin_rdma.entries import AUXILIARY
from deviceplugin_rdma.settings import RdmaSettings


@dataclass(frozen=True)
class Peer:
    """What one of the two plugins has."""

    name: str
    image: re.Pattern[str]
    """What the name of its image has in it: builds of others put something before or after it."""
    file: str
    """Its configuration, unless a flag names another."""
    list: str
    """The list of resources in that."""
    keys: tuple[str, ...]
    """What else may be in that."""
    flags: tuple[str, ...]
    differences: tuple[str, ...]

    def migration(self) -> Migration:
        """Return what is the same for each who had it."""
        return Migration(
            peer=self.name, plugin="rdma", configuration={}, differences=[*self.differences]
        )

    def read(self, file: Setting, prefix: str = "") -> Mapping[str, Any]:
        """Return the content of its file, whose resources are valid here.

        A file without resources offers none, as there: ours would have the default. ``prefix`` is
        the domain of resources without one.

        Raises:
            ConfigError: Ours cannot read it.
        """
        content = partial(self._content, prefix or RdmaSettings.resource_prefix)
        found = checked(of_text(str(file.value), file.place), content)
        return {**found, self.list: found.get(self.list) or []}

    def _content(self, prefix: str, root: Place) -> Mapping[str, Any]:
        places = root.keys((self.list, *self.keys), any_case=True)
        entries: Any = RdmaSettings.from_file(root).get("resources", ())
        for entry in entries:
            name = f"{entry.prefix or prefix}/{entry.name}"
            if problem := resource_name_problem(name):
                root.fault(f"{name!r} is not the name of a resource: {problem}")
        content = {key: anything().read(place) for key, place in places.items()}
        known: dict[str, Any] = without_nulls(content)
        has_subs = any(entry.kind == AUXILIARY for entry in entries)
        return {**known, "sub-function-ids": "name"} if has_subs else known


SRIOV: Final = Peer(
    name="the SR-IOV network device plugin",
    image=re.compile("sriov-(network-)?device-plugin|sriov-network-device$"),
    file="/etc/pcidp/config.json",
    list="resourceList",
    keys=(),
    flags=("config-file", "resource-prefix", "log-dir", "log-level"),
    differences=(
        "resource names, device ids and variables: the same",
        (
            "health: by the link of the card, theirs are always healthy; link-health: ignore turns "
            "that off"
        ),
        "functions that are created later: offered without a restart",
    ),
)
SHARED: Final = Peer(
    name="the RDMA shared device plugin",
    image=re.compile("k8s-rdma-shared-dev(ice)?-plugin"),
    file="/k8s-rdma-shared-dev-plugin/config.json",
    list="configList",
    keys=("periodicUpdateInterval",),
    flags=("config-file",),
    differences=(
        "resource names: the same",
        "device ids: hca_shared::0 and the like in place of 0, so drain nodes first",
        "permissions of device nodes: rw in place of rwm",
        "links: not set up by ours",
        "health: by the ports of the cards",
    ),
)
PEERS: Final = (SRIOV, SHARED)
