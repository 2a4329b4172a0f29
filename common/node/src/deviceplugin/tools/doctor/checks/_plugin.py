"""A plugin itself: what it lacks, whether the kubelet has it, and a file of several plugins."""

from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

from deviceplugin._config.settings import Settings
from deviceplugin._inventory.divided import listed
from deviceplugin.checks import Finding, Node, failure, ok, warning
from deviceplugin.errors import ConfigError, DevicePluginError
from deviceplugin.kit.log import few
from deviceplugin.tools._devices_page import (
    Credentials,
    NoAnswerError,
    RefusedError,
    ask,
    page_of,
    parts_in,
)
from deviceplugin.tools.agent import _sections
from deviceplugin.tools.agent._sections import Refused, attribute, named_in, places_in, settings_of
from deviceplugin.tools.doctor.checks._kubelet import healthy_devices

_T = TypeVar("_T")

_MOST: Final = 64 << 20
"""Most bytes of an answer."""
_OFF: Final = "off"
_LONG: Final = 24 * 3600.0
"""Seconds after which a hold may have been forgotten; the alert DeviceHeldLong says so too."""
_REGISTER: Final = (
    "do as it says; the checks of the kubelet above say what keeps a plugin from it. A plugin that "
    "is just starting registers within seconds."
)
_SKIPPED: Final = "the plugin offers nothing for this entry, as on-invalid-entry says."
_SHORT: Final = {
    "shortfalls": (
        "the plugin offers less than it should.",
        "do as it says; the plugin finds out by itself.",
    ),
    "fixed_files": (
        "the plugin goes on with what it read at its start.",
        "do as it says; until then, restart the pod after each change.",
    ),
}
"""What else is short, by the key of the page: what it means, and what to do."""
_ENDS: Final = "device-plugins exits with status 2, and its pod restarts for ever."


class _NotAskedError(Exception):
    """Nobody is asked, or nobody answers; it has the finding."""


def _asked(node: Node, reduce: Callable[[Any], _T], lost: str) -> tuple[str, _T]:
    """Return the page of the plugin that runs here, and what ``reduce`` makes of it."""
    settings = node.settings
    address = settings.http_address
    if node.root != Path("/") or address == _OFF:
        found = "is asked only where it runs, and where it serves HTTP"
        raise _NotAskedError(ok("the running plugin", found))
    host, _, port = address.rpartition(":")
    scheme = "https" if settings.http_cert_file else "http"
    page = page_of(f"{scheme}://{host or '127.0.0.1'}:{port}")
    # Its own certificate is known here, whatever name is in it.
    credentials = Credentials(settings.http_token_file, settings.http_cert_file, is_named=False)
    try:
        return page, ask(page, reduce, node.timeout, credentials, _MOST)
    except RefusedError as error:
        do = "set DP_HTTP_TOKEN_FILE and DP_HTTP_CERT_FILE as for the plugin."
        raise _NotAskedError(warning(page, str(error), means=lost, do=do)) from error
    except NoAnswerError as error:
        raise _NotAskedError(ok(page, "no plugin answers here")) from error


def shortfalls(node: Node) -> Iterator[Finding]:
    lost = "what the plugin should offer and does not is not known."
    try:
        page, found = _asked(node, _shortfalls, lost)
    except _NotAskedError as reason:
        yield reason.args[0]
        return
    for text in found["invalid_entries"]:
        yield failure(page, f"invalid entry: {text}", means=_SKIPPED, do="correct the entry.")
    for key, (means, do) in _SHORT.items():
        yield from (warning(page, text, means=means, do=do) for text in found[key])
    if not any(found.values()):
        yield ok(page, "the plugin offers all that it should")


def _shortfalls(page: Any) -> Mapping[str, list[str]]:
    """Return messages by their kind; older plugins have fewer kinds."""
    invalid = page.get("invalid_entries") or {}
    texts = [f"{name}: {text}" for name, some in invalid.items() for text in some]
    lists = {key: one if isinstance(one := page.get(key), list) else [] for key in _SHORT}
    return {"invalid_entries": texts, **{key: [*map(str, one)] for key, one in lists.items()}}


def holds(node: Node) -> Iterator[Finding]:
    """What an operator holds, and for how long."""
    try:
        page, (found, problem) = _asked(node, _holds, "what is held is not known.")
    except _NotAskedError as reason:
        yield reason.args[0]
        return
    if problem:
        means = "no device can be held here, or what was held before is given to pods again."
        yield warning(page, f"holds: {problem}", means=means, do="do as it says; see the log.")
    for name, why, since in found:
        lasts = max(0.0, node.wall() - since)
        text = f"held for {timedelta(seconds=round(lasts))}: {why}"
        if lasts > _LONG:
            means = "no pod gets it. Somebody may have forgotten it."
            yield warning(name, text, means=means, do=f"deviceplugin release {name}")
        else:
            yield ok(name, text)
    if not (found or problem):
        yield ok(page, "nothing is held")


def _holds(page: Any) -> tuple[list[tuple[str, str, float]], str]:
    found = [
        (str(one["device"]), f"{one['reason']} ({one['state']})", float(one["since"]))
        for one in page.get("holds", ())
    ]
    return found, str(page.get("holds_problem", ""))


class _Offer(NamedTuple):
    """A resource of the plugin that runs here."""

    name: str
    registered: bool
    problem: str
    healthy: frozenset[str]
    """Those that the kubelet should have."""
    devices: frozenset[str]


def _offers(page: Any) -> list[_Offer]:
    return [
        _Offer(
            one["name"],
            one["registered"],
            one["problem"],
            # None of these is the kubelet's while DRA offers all; an older plugin does not say it.
            frozenset(
                each["id"] for each in one["devices"] if each["healthy"] and not _is_made(each)
            )
            if one.get("offered", {}).get("device-plugin", 1)
            else frozenset(),
            frozenset(each["id"] for each in one["devices"]),
        )
        for one in page["resources"]
    ]


def _is_made(device: Any) -> bool:
    """Return whether it is a part that is made for claims, which no kubelet has."""
    return bool((device.get("part") or {}).get("on_demand"))


def parts(node: Node) -> Iterator[Finding]:
    """What is made of hardware that can be given out in parts, and what more could be."""
    try:
        page, found = _asked(node, parts_in, "what parts are made is not known.")
    except _NotAskedError as reason:
        yield reason.args[0]
        return
    for (resource, name), profiles in found.items():
        yield ok(f"{resource} {name}", listed(profiles))
    if not found:
        yield ok(page, "no device has parts")


def registrations(node: Node) -> Iterator[Finding]:
    """Compare what the running plugin offers with what the kubelet has of its resources."""
    lost = "whether the kubelet has the devices of this plugin is not known."
    try:
        page, before = _asked(node, _offers, lost)
        kubelets = healthy_devices(node)
        # Asked again, because a difference that is gone by now was only a change.
        now = _asked(node, _offers, lost)[1]
    except _NotAskedError as reason:
        yield reason.args[0]
        return
    earlier = {one.name: one for one in before}
    found = [
        finding
        for one in now
        if one.name in earlier and (finding := _differs(earlier[one.name], one, kubelets))
    ]
    yield from found or [ok(page, "the kubelet has what the plugin offers, as far as is visible")]


def _differs(
    before: _Offer, now: _Offer, kubelets: Mapping[str, frozenset[str]] | None
) -> Finding | None:
    if now.problem and before.problem:
        means = "the kubelet has none of its devices, or has lost them."
        return failure(now.name, f"is not registered: {now.problem}", means=means, do=_REGISTER)
    theirs = (kubelets or {}).get(now.name, frozenset())
    if foreign := sorted(theirs - before.devices - now.devices):
        return failure(
            now.name,
            f"the kubelet has {few(foreign, 1)}, which this plugin does not list",
            means="another plugin on this node offers the same resource, also if its socket is "
            "not visible here: pods get its devices in place of these.",
            do="keep one: kubectl get daemonsets -A shows both.",
        )
    both = before.registered and now.registered and before.healthy & now.healthy
    if kubelets is not None and both and not theirs:
        return failure(
            now.name,
            f"the kubelet has none of the {len(both)} healthy devices of this plugin",
            means="the plugin believes that it is registered. It is with another kubelet, or the "
            "directories here are not those of the kubelet that runs now.",
            do="restart the pod of the plugin; --only plugin-directory and --only kubelet-socket "
            "say more.",
        )
    return None


def sections(node: Node) -> Iterator[Finding]:
    """The sections of a configuration file that several plugins share."""
    path = node.config
    if path is None or path.is_dir():
        yield ok("configuration", "no file is named")
        return
    try:
        shared = places_in(path, _sections.names())
        names = named_in(path, _sections.names()) if shared else []
    except ConfigError as error:
        yield failure(path, _said(error, path), means=_ENDS, do="correct it.")
        return
    if names:
        yield from _of_sections(path, names)
    else:
        yield ok(path, "is the file of one plugin")


def _of_sections(path: Path, names: list[str]) -> Iterator[Finding]:
    kinds: dict[str, type[Settings]] = {}
    for name in names:
        try:
            kinds[name] = _sections.hosted(name).settings
        except DevicePluginError as error:
            do = "install its package with all its dependencies."
            yield _unusable(path, name, str(error), do)
    others = {*names} - kinds.keys()
    try:
        settings = settings_of(kinds, others).of_file(path)
    except ConfigError as error:
        yield failure(path, _said(error, path), means=_ENDS, do="correct what stands at the top.")
        return
    for name in kinds:
        section = getattr(settings, attribute(name))
        if isinstance(section, Refused):
            do = "correct the section: the plugin starts without a restart of the process."
            yield _unusable(path, name, _said(section.reason, path), do)
            continue
        for text in section.invalid_entries:
            found = _said(text, path)
            yield failure(f"{path}: {name}", found, means=_SKIPPED, do="correct the entry.")
        if not section.invalid_entries:
            yield ok(f"{path}: {name}", "valid")


def _unusable(path: Path, name: str, found: str, do: str) -> Finding:
    means = f"{name} advertises nothing, or continues with older settings; the others run."
    return failure(f"{path}: {name}", found, means=means, do=do)


def _said(error: object, path: Path) -> str:
    return str(error).removeprefix(f"{path}: ").replace(f"{path}:", "line ")
