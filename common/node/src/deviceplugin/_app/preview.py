"""What ``--once`` prints: the result of a single discovery."""

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby

from deviceplugin._app.patience import waiting
from deviceplugin._app.text_table import aligned
from deviceplugin._config.settings import Settings
from deviceplugin._discovery.found import Groups, describe, discover, facts
from deviceplugin._inventory.validation import natural_key
from deviceplugin.errors import DevicePluginError
from deviceplugin.kit import numa
from deviceplugin.model import Device
from deviceplugin.plugin import Plugin

_HEADER = ("RESOURCE", "DEVICE", "HEALTH", "NUMA", "DEVICE NODES", "ATTRIBUTES")
_MOST_FACTS = 8
"""Most attributes and capacities of a device in the table; ``--output json`` has all."""
_MOST_ALIKE = 10
"""How many rows that differ in the device alone, such as shares, are shown each."""


def show(
    plugins: Sequence[Plugin], output: str | None = None, settings: Settings | None = None
) -> int:
    """Print what ``plugins`` would advertise, in the form ``output``, or as the protocol suggests.

    Returns the exit status: 1 if a discovery failed, or if no device would be advertised.
    """
    write = _writer(plugins, output, settings or Settings())
    groups: Groups = {}
    status = 0
    for plugin in plugins:
        try:
            with waiting(type(plugin).__name__, "discover()"):
                more, problems = discover(plugin)
        except DevicePluginError as error:
            sys.stderr.write(f"{type(plugin).__name__}: discovery failed: {error}\n")
            status = 1
            continue
        problems.update(
            f"resource belongs to another plugin: {name}" for name in more.keys() & groups.keys()
        )
        added = {name: group for name, group in more.items() if name not in groups}
        for name, group in added.items():
            devices, reason = numa.even(group.values())
            groups[name] = {device.id: device for device in devices}
            if reason:
                sys.stderr.write(
                    f"{type(plugin).__name__}: topology not advertised: {name}: {reason}\n"
                )
        sys.stderr.writelines(f"{type(plugin).__name__}: skipped: {text}\n" for text in problems)
        wrong = (f"invalid entry skipped: {text}" for text in plugin.invalid_entries)
        said = [*wrong, *plugin.shortfalls]
        sys.stderr.writelines(f"{type(plugin).__name__}: {text}\n" for text in said)
    # A reason may name a file whose name is not valid Unicode.
    sys.stdout.write(write(groups).encode(errors="backslashreplace").decode())
    sys.stdout.flush()  # so that messages about the table come after it, even in a pipe
    if not (status or any(groups.values())):
        sys.stderr.write("no device would be advertised\n")
        status = 1
    return status


def _writer(
    plugins: Sequence[Plugin], output: str | None, settings: Settings
) -> Callable[[Groups], str]:
    output = output or ("slices" if settings.protocol == "dra" else "table")
    if output in {"table", "json"}:
        return _as_json if output == "json" else _as_table
    from deviceplugin._app.slices_preview import writer  # it loads what DRA needs

    return writer(plugins, settings, of_classes=output == "device-classes")


def _as_json(groups: Groups) -> str:
    resources = [
        {
            "name": name,
            "devices": [
                {k: v for k, v in describe(group[i], 0).items() if k != "since"}
                for i in sorted(group, key=natural_key)
            ],
        }
        for name, group in sorted(groups.items())
    ]
    return json.dumps({"resources": resources}, indent=2) + "\n"


def _as_table(groups: Groups) -> str:
    rows: list[tuple[str, ...]] = [_HEADER]
    for name, group in sorted(groups.items()):
        for device_id in sorted(group, key=natural_key):
            device = group[device_id]
            numa = device.topology.numa_nodes if device.topology else ()
            rows.append(
                (
                    name,
                    device.id,
                    str(device.health),
                    ",".join(map(str, numa)) or "-",
                    ",".join(node.host_path for node in device.nodes) or "-",
                    _listed(device),
                )
            )
        if not group:
            rows.append((name, "(none now)", "-", "-", "-", "-"))
    if not groups:
        return "nothing to advertise\n"
    return "".join(f"{line}\n" for line in aligned([*_shortened(rows)]))


def _listed(device: Device) -> str:
    known = [f"{name}={value}" for name, value in facts(device)]
    more = [f"({len(known) - _MOST_FACTS} more)"] if len(known) > _MOST_FACTS else []
    return ",".join([*known[:_MOST_FACTS], *more]) or "-"


def _shortened(rows: Sequence[tuple[str, ...]]) -> Iterator[tuple[str, ...]]:
    """Yield the rows; many in a row that differ in nothing but the device are one."""
    for _, alike in groupby(rows, lambda row: (row[0], *row[2:])):
        first, *others = alike
        if len(others) < _MOST_ALIKE:
            yield from (first, *others)
        else:
            name, device, *rest = first
            yield (name, f"{device} to {others[-1][1]} ({len(others) + 1})", *rest)
