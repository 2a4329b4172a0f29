"""Files by which Multus passes on facts about devices to network plugins and pods.

By the device information specification of the Network Plumbing Working Group: one file for each
device, named after the resource and the device's id.
"""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

from deviceplugin.kit import files
from deviceplugin_rdma.offer import Offered

_VERSION: Final = "1.1.0"
_END: Final = "-device.json"


def publish(folder: Path, resource: str, found: Iterable[Offered]) -> Iterator[str]:
    """Write the files of the devices of a resource, and remove those of devices that are gone.

    Yields what keeps them from being written.
    """
    start = f"{resource.replace('/', '-')}-"
    wanted = {f"{start}{one.device.id}{_END}": _text(one) for one in found}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in wanted.items():
            files.write(folder / name, text, mode=0o444)
        for path in folder.glob(f"{start}*{_END}"):
            is_own = path.name.removeprefix(start)[4:5] == ":"  # not of another, longer name
            if is_own and path.name not in wanted:
                files.remove(path)
    except OSError as error:
        yield str(error)


def _text(one: Offered) -> str:
    nic, access = one.offers[0].nic, one.offers[0].access
    facts: dict[str, Any] = {"pci-address": nic.address}
    if "rdma" in access.info:
        facts["rdma-device"] = ",".join(nic.rdma)
    return json.dumps({"type": "pci", "version": _VERSION, "pci": facts})
