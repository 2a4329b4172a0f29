"""Reading the flags of Intel's plugins, and the keys that stand for flags."""

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, Final

from deviceplugin.kit.migration import (
    LOGGING,
    LOGGING_SWITCHES,
    Migration,
    Setting,
    Workload,
    flags,
)
from deviceplugin.kit.sharing import MOST
from deviceplugin_intelgpu.migrate.peers import LABEL, Recognized

Read = Callable[[Setting], Any]

LOGS: Final = dict.fromkeys(
    (*LOGGING, *LOGGING_SWITCHES, "debug"), "use the component verbose instead"
)
"""Flags for logs, and why they are not taken over."""
SWITCHES: Final = frozenset(LOGGING_SWITCHES) | {
    *("debug", "enable-monitoring", "health-management", "resource-manager", "wsl"),
}
"""Flags that need no value."""
UNUSED: Final[Mapping[str, str]] = {
    "image": "",
    "initImage": "not needed: it writes labels; the component intelgpu-labels has ours do so",
    "nodeSelector": "",
    "tolerations": "",
}
"""Fields that stand for no flag, and why they are not taken over; "" if they are."""
VARIABLES: Final = ("NODE_NAME", "HOST_IP")
"""Variables, of which ours needs none."""
OF_CHART: Final[Mapping[str, str]] = {
    "name": "",
    "annotations": "of their object; not needed",
    "enabled": "",
    "nodeFeatureRule": "",
}
"""The same for values of the charts that its objects do not have."""
OF_FIRST_CHART: Final[Mapping[str, str]] = {"metadata": "", "nodeFeatureRule": ""}
"""The same for values of its first releases, beside ``spec``."""
RULE: Final = "intel-dp-{}-device"
"""The NodeFeatureRule of a chart, which labels nodes that have such devices."""
_OFF: Final = frozenset({"", "0", "f", "false"})
_ON: Final = frozenset({"1", "t", "true"})
_NUMBER: Final = re.compile("[0-9]{1,9}")
_MODEL: Final = re.compile("0x[0-9a-f]{4}")


def switch(given: Setting) -> bool:
    """Return true or false; raise ``ConfigError`` for anything else."""
    text = str(given.value).lower()
    if text not in _ON | _OFF:
        raise given.wrong("true or false")
    return text in _ON


def number(given: Setting) -> int:
    """Return a number of shares; raise ``ConfigError`` for anything else."""
    text = str(given.value)
    if not _NUMBER.fullmatch(text) or not 1 <= int(text) <= MOST:
        raise given.wrong(f"a number of shares: 1 to {MOST}")
    return int(text)


def one_of(*choices: str) -> Read:
    """Return what reads one of the ``choices``."""

    def read(given: Setting) -> str:
        if given.value not in choices:
            raise given.wrong(f"one of {', '.join(choices)}")
        return str(given.value)

    return read


def models(given: Setting) -> list[str]:
    """Return a list of PCI ids; raise ``ConfigError`` for anything else."""
    found = [part.strip() for part in str(given.value).split(",")]
    if not all(_MODEL.fullmatch(one) for one in found):
        raise given.wrong("a list of PCI ids in lower case, such as 0x56c0,0x56c1")
    return found


def read(
    workload: Workload,
    found: Recognized,
    known: Mapping[str, tuple[str, Read]],
    dropped: Mapping[str, str],
    result: Migration,
) -> Iterator[tuple[str, Any]]:
    """Yield our setting and its value for each flag or key, and account for all others.

    ``known`` are the names and readers of our settings by flags; ``dropped`` are reasons.

    Raises:
        ConfigError: A flag is unknown, or a value is invalid.
    """
    for flag, given in _given(workload, found, {*known, *dropped}):
        is_off = str(given.value).lower() in _OFF
        if given.path and (flag in known or is_off):
            workload.account.take(given.path)
        elif given.path:
            workload.account.drop(given.path, dropped[flag])
        elif flag not in known and not is_off:
            result.differs(f"--{flag}", dropped[flag])
        if flag in known and given.value != "":
            key, reader = known[flag]
            yield key, reader(given)


def _given(
    workload: Workload, found: Recognized, names: Collection[str]
) -> Iterator[tuple[str, Setting]]:
    if found.keys is None:
        for name in VARIABLES:
            workload.variable(name)
        yield from flags(workload, names, SWITCHES.intersection(names))
    for key, flag in (found.keys or {}).items():
        given = workload.has(*found.prefix, key) if flag in names else None
        if given is not None:
            yield flag, given


def place(workload: Workload, found: Recognized, result: Migration) -> bool:
    """Take over where the peer runs, and account for keys that stand for no flag.

    Returns:
        Whether the rule that labels nodes with such devices goes with the peer.
    """
    if found.keys is None:
        return False
    _note_others(workload, found, result)
    if not _is_ruled(workload, found):
        return False
    label, selector = LABEL.format(found.plugin), result.pod.get("nodeSelector")
    if isinstance(selector, Mapping):
        result.pod["nodeSelector"] = {k: v for k, v in selector.items() if k != label}
    result.differs(
        f"nodeSelector {label}",
        "not kept, because the rule for that label goes with theirs; ours is idle on other nodes",
    )
    rule = RULE.format(found.plugin)
    result.removed.append(f"the NodeFeatureRule {rule}, which labels nodes with {label}")
    return True


def _note_others(workload: Workload, found: Recognized, result: Migration) -> None:
    if found.above and found.above == found.prefix:
        for key in {*(workload.values or {})} - {*found.above}:
            workload.drop("not taken over: of another chart", key)
    init = workload.has(*found.prefix, "initImage")
    if init and isinstance(init.value, Mapping) and init.value.get("enable") is False:
        workload.account.take(init.path)
    for key, why in UNUSED.items():
        if why:
            workload.drop(why, *found.prefix, key)
        elif (given := workload.key(*found.prefix, key)) and key != "image":
            result.pod[key] = given.value


def _is_ruled(workload: Workload, found: Recognized) -> bool:
    if workload.kind:
        workload.key("status")
        rules = [one for one, _ in workload.account.objects("NodeFeatureRule")]
        names = [workload.account.get((*one, "metadata", "name")) for one in rules]
        return RULE.format(found.plugin) in names
    if not found.is_chart:
        return False
    is_first = found.prefix != found.above
    for key, why in (OF_FIRST_CHART if is_first else OF_CHART).items():
        workload.drop(why, *found.above, key) if why else workload.key(*found.above, key)
    given = workload.has(*found.above, "nodeFeatureRule")
    return not is_first if given is None else switch(given)
