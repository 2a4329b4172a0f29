"""The hypervisor's driver, from the PCI configuration of a virtual machine's GPUs.

A vendor-specific capability with the signature ``VF`` after its length has records of number,
length and data. Only a privileged process can read more than 64 bytes of a configuration.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from deviceplugin_gpu.host import links

_NVIDIA: Final = "0x10de"
_WHOLE: Final = 256
_STATUS, _HAS_CAPABILITIES = 0x06, 0x10
_FIRST: Final = 0x34
_HEADER: Final = 0x40
"""Bytes before the first capability."""
_VENDOR_SPECIFIC: Final = 0x09
_SIGNATURE: Final = b"VF"
_RECORDS: Final = 5
_HOST_DRIVER: Final = 0
_TEXT: Final = 10
"""Sizes in bytes of the driver's version and of its branch, which follows."""


def labels(sys: Path) -> dict[str, str]:
    """Return the labels without domain; none if no GPU's configuration can be read."""
    capabilities = []
    seen = False
    for config in _configurations(sys):
        seen = True
        capabilities += [one for one in _vendor_specific(config) if one[3:5] == _SIGNATURE]
    if not seen:
        return {}
    found = {"vgpu.present": "true" if capabilities else "false"}
    for capability in capabilities:
        record = _record(capability)
        if record is not None:
            version, branch = record[:_TEXT], record[_TEXT : 2 * _TEXT]
            found["vgpu.host-driver-version"] = _text(version)
            found["vgpu.host-driver-branch"] = _text(branch)
    return found


def _configurations(sys: Path) -> Iterator[bytes]:
    for device in links.matches(sys / "bus/pci/devices", "*"):
        try:
            if (device / "vendor").read_text(errors="replace").strip() != _NVIDIA:
                continue
            config = (device / "config").read_bytes()
        except OSError:
            continue
        if len(config) >= _WHOLE:
            yield config[:_WHOLE]


def _vendor_specific(config: bytes) -> Iterator[bytes]:
    """Yield such capabilities. A broken or circular chain ends the iteration."""
    if not config[_STATUS] & _HAS_CAPABILITIES:
        return
    place, visited = config[_FIRST], set[int]()
    while _HEADER <= place <= _WHOLE - 3 and place not in visited:
        visited.add(place)
        number, following, length = config[place : place + 3]
        if number == _VENDOR_SPECIFIC:
            yield config[place : place + length]
        place = following


def _record(capability: bytes) -> bytes | None:
    """Return the data of the record about the host's driver."""
    place = _RECORDS
    while place + 1 < len(capability):
        number, length = capability[place : place + 2]
        data = capability[place + 2 :]
        if number == _HOST_DRIVER:
            return data if len(data) >= 2 * _TEXT else None
        if not length:
            return None
        place += length
    return None


def _text(raw: bytes) -> str:
    return raw.strip(b"\0").decode("ascii", errors="replace")
