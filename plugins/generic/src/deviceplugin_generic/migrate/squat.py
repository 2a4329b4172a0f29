"""squat/generic-device-plugin: its flags, its variables and its file."""

import posixpath
import re
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final

import deviceplugin as dp
from deviceplugin.kit.configuration import Place, anything, of_text, refuse
from deviceplugin.kit.migration import Migration, Path, Setting, Workload, checked, flags
from deviceplugin_generic.configuration import entry_lists, globs, loading
from deviceplugin_generic.configuration.entries import LEVELS, Entry
from deviceplugin_generic.configuration.loading import Domains
from deviceplugin_generic.migrate.spellings import rewrite

_NAME: Final = "generic-device-plugin"
_OURS: Final = "DP_CONFIG"
_DEFAULT_FILES: Final = ("/etc/generic-device-plugin/config", "/config")
_ENDINGS: Final = (".yaml", ".yml", ".json", ".toml")
_OTHERS: Final = {
    **dict.fromkeys((".hcl", ".tfvars"), "HCL, which ours does not read"),
    ".ini": "INI, which ours does not read",
    **dict.fromkeys((".properties", ".props", ".prop"), "properties, which ours does not read"),
    **dict.fromkeys((".env", ".dotenv"), "variables, which ours does not read"),
}
"""Other endings of its file."""
_SETTINGS: Final = ("domain", "listen", "log-level", "plugin-directory")
_FLAGS: Final = ("config", "device", *_SETTINGS)
_LISTS: Final = ("devices", "device")
_KEYS: Final = (*_SETTINGS, *_LISTS)
_PLUGIN_DIRECTORY: Final = "/var/lib/kubelet/device-plugins"
_VERSION: Final = re.compile(r"v?(\d+)\.(\d+)(\.\d+)?")
_RENAMED: Final = (0, 2)
"""Since this release its domain is ours."""
_OLD_DOMAIN: Final = "squat.ai"


_ALWAYS: Final = (
    "metrics: other names, and /healthz and /readyz instead of /health",
    (
        "vanished devices: listed as unhealthy while a pod holds them; theirs drops them from the "
        "list"
    ),
)


def migrate(workload: Workload) -> Migration | None:
    """Return what becomes of squat's plugin; None for anything else, as for our own image."""
    is_ours = _OURS in workload.variables
    if workload.values is not None or workload.name != _NAME or is_ours:
        return None
    given = list(flags(workload, _FLAGS, ["version"]))
    result = Migration(
        peer="generic-device-plugin of squat",
        plugin="generic",
        configuration={},
        differences=[
            "device ids: the same, so running pods keep their devices",
            *_ALWAYS,
        ],
    )
    settings, entries, raw = _file(workload, given, result)
    settings |= _variables(workload)
    settings |= {name: one for name, one in given if name in _SETTINGS}
    if texts := [one for name, one in given if name == "device"]:
        roots = [of_text(str(one.value), one.place) for one in texts]
        for root in roots:
            for one in loading.items(root) if root.kind == "list" else [root]:
                rewrite(one, result.differs, is_flag=True)
        found, places = loading.of_flags(roots)
        refuse(root.faults for root in roots)
        entries, raw = list(found), [anything().read(one) for one in places]
    if raw is None:
        raise dp.ConfigError(f"{workload.place}: has no devices: neither --device nor a file")
    level = settings.get("log-level")
    result.configuration = {
        **_domain(workload, settings.get("domain"), result),
        **({"log-level": _level(level, result)} if level else {}),
        "devices": raw,
    }
    _elsewhere(settings, result)
    _hosts(workload, entries, result)
    return result


def _file(
    workload: Workload, given: Sequence[tuple[str, Setting]], result: Migration
) -> tuple[dict[str, Setting], list[Entry], list[Any] | None]:
    """Return the settings, the entries and the devices of its file; None without a list of them."""
    named = [str(one.value) for name, one in given if name == "config"]
    known = [f"{place}{end}" for place in _DEFAULT_FILES for end in (*_ENDINGS, *_OTHERS, "")]
    default = next((path for path in known if path in workload.files), "")
    path = named[-1] if named else default
    if not path and workload.configuration is None:
        return {}, [], None
    file = workload.file(posixpath.normpath(path), f"the file {path} of --config")
    language = posixpath.splitext(path)[1]
    # A file that it has found itself is YAML to it, whatever its name.
    language = language if named and language != ".yml" else ".yaml"
    if language not in _ENDINGS:
        what = _OTHERS.get(language, "a language that theirs does not know by its name")
        raise dp.ConfigError(f"{file.place}: is in {what}: write it as YAML, with keys as in JSON")
    root = of_text(str(file.value), file.place, language, is_file=True)
    return checked(root, partial(_read, result))


def _read(
    result: Migration, root: Place
) -> tuple[dict[str, Setting], list[Entry], list[Any] | None]:
    places = root.keys(_KEYS, any_case=True)
    lists = [places[name] for name in _LISTS if name in places]
    items = [one for found in lists for one in loading.items(found)]
    for one in items:
        rewrite(one, result.differs, is_flag=False)
    settings = {
        name: Setting(str(place), place.raw)
        for name, place in places.items()
        if name in _SETTINGS and place.kind != "nothing"
    }
    raw = [anything().read(one) for one in items]
    return settings, list(entry_lists.entries(items)), raw if lists else None


def _variables(workload: Workload) -> dict[str, Setting]:
    """Return the settings among its variables; what it does not read has no effect."""
    names = {name.upper().replace("-", "_"): name for name in _SETTINGS}
    known = {name: workload.variable(key) for key, name in names.items()}
    found = {name: one for name, one in known.items() if one}
    workload.drop_variable("DEVICE", "not taken over; theirs cannot read it either")
    for name in workload.variables:
        workload.drop_variable(name, "theirs does not read it")
    return {name: one for name, one in found.items() if one.value}


def _domain(workload: Workload, given: Setting | None, result: Migration) -> dict[str, Any]:
    if given:
        try:
            domains = Domains.parse(given.value)
        except dp.ConfigError as error:
            raise dp.ConfigError(f"{given.place}: {error}") from error
        result.differs("resource names", f"the same, {domains.names[0]}/...")
        return {"domain": domains.write()}
    version = _VERSION.fullmatch(workload.tag)
    if version and (int(version[1]), int(version[2])) < _RENAMED:
        result.differs(
            "resource names", f"the same: before 0.2.0 their domain was {_OLD_DOMAIN} by default"
        )
        return {"domain": _OLD_DOMAIN}
    if not version:
        tag = f"the tag {workload.tag}" if workload.tag else "an image without a tag"
        result.differs(
            "resource names",
            f"devic.es/..., which is their domain since 0.2.0; {tag} does not say how old it is: "
            f"if pods ask for {_OLD_DOMAIN}/..., write domain: [devic.es, {_OLD_DOMAIN}], so "
            "that both names work while they move",
        )
    return {}


def _level(given: Setting, result: Migration) -> str:
    level = LEVELS.get(str(given.value), str(given.value))
    if level != given.value:
        result.differs("--log-level", f"{given.value} is {level} here")
    if level not in {"debug", "info", "warning", "error"}:
        raise given.wrong("one of their log levels: all, debug, info, warn, error and none")
    return level


def _elsewhere(settings: Mapping[str, Setting], result: Migration) -> None:
    if listen := settings.get("listen"):
        result.differs("--listen", f"{listen.value} becomes :9494, where our probes look")
    directory = settings.get("plugin-directory")
    if directory and str(directory.value).rstrip("/") != _PLUGIN_DIRECTORY:
        result.differs(
            "--plugin-directory",
            f"{directory.value} is not taken over: mount that directory of the host at "
            f"{_PLUGIN_DIRECTORY}, which kubelets always use",
        )


def _hosts(workload: Workload, entries: Sequence[Entry], result: Migration) -> None:
    """Add what the plugin has to see of the host."""
    specs = [spec for entry in entries for group in entry.groups for spec in group.paths]
    folders = sorted({_folder(spec.path) for spec in specs})
    if any(one == "/dev" or one.startswith("/dev/") for one in folders):
        result.components.append("host-dev")
        result.differs("host path /dev", "mounted read-only, by the component host-dev")
    elsewhere = [one for one in folders if one != "/dev" and not one.startswith("/dev/")]
    for folder in elsewhere:
        if folder == "/":
            result.differs("host path /", "not mounted: name directories instead of a pattern")
        elif not any(folder.startswith(f"{other}/") for other in elsewhere):
            host = result.mounts[folder] = _on_host(workload, folder)
            how = "mounted read-only, so that its paths are found"
            if host != folder:
                how += f"; a host without {folder} cannot give pods its devices: write {host}/..."
            result.differs(f"host path {host}", how)


def _on_host(workload: Workload, folder: str) -> str:
    """Return what a directory of the container is on the host."""
    root: Path = workload.root
    mounts: list[Any] = workload.account.get((*root, "volumeMounts")) or []
    volumes: list[Any] = workload.account.get((*root[:-2], "volumes")) or []
    given = [(str(one.get("name")), one.get("hostPath")) for one in volumes]
    hosts = {name: str(one.get("path") or "") for name, one in given if isinstance(one, Mapping)}
    over = [(str(one.get("mountPath") or ""), str(one.get("name"))) for one in mounts]
    for path, name in sorted(over, key=lambda one: -len(one[0])):
        if (
            path
            and hosts.get(name, "").startswith("/")
            and f"{folder}/".startswith(f"{path.rstrip('/')}/")
        ):
            return posixpath.normpath(posixpath.join(hosts[name], posixpath.relpath(folder, path)))
    return folder


def _folder(pattern: str) -> str:
    """Return the deepest directory that has all matches of a pattern."""
    folder = posixpath.dirname(posixpath.normpath(pattern))
    while globs.is_magic(folder):
        folder = posixpath.dirname(folder)
    return folder
