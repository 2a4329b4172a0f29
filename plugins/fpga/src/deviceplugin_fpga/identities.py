"""Ids of ports and engines that a reboot does not change.

The kernel numbers both in the order in which it finds them. A port's place is fixed by its card, a
PCI address, and by the port's number on the card, which the hardware has.
"""

from collections.abc import Iterator, Mapping

from deviceplugin.kit.sysfs import OddError, SysfsError
from deviceplugin_fpga.drivers import Found


def by_address(found: Found) -> Mapping[str, str]:
    """Return ids such as ``0000:3b:00.0-port1`` by the kernel's names, such as ``dfl-port.4``.

    What has no id of its own is missing, and ``found`` gets the reason.
    """
    ids: dict[str, str] = {}
    owners: dict[str, list[str]] = {}
    for name, id_ in _ids(found):
        ids[name] = id_
        owners.setdefault(id_, []).append(name)
    for id_, names in owners.items():
        if len(names) > 1:  # none of them may be taken for another
            problem = OddError(id_, f"not the id of one device: {', '.join(names)}")
            found.skip(problem, *names)
            for name in names:
                del ids[name]
    return ids


def _ids(found: Found) -> Iterator[tuple[str, str]]:
    for fme in found.fmes:
        yield fme.name, f"{fme.card.name}-fme"
        for port in fme.ports:
            try:
                yield port.name, f"{port.card.name}-port{port.number()}"
            except SysfsError as error:
                found.skip(error, port.name)
