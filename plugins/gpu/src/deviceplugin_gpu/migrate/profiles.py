"""Configuration files of NVIDIA's plugin, and which of them a node's label chooses."""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from typing_extensions import override

import deviceplugin as dp
from deviceplugin.kit.configuration import Place, of_plain, of_text
from deviceplugin.kit.migration import Migration, Setting, Workload, checked
from deviceplugin_gpu.configuration.node_choice import LABEL
from deviceplugin_gpu.configuration.settings import GpuSettings
from deviceplugin_gpu.migrate.peers import is_manager, siblings

_MISPLACED: Final = re.compile(
    r"resources\[\d+\]\.(failRequestsGreaterThanOne|renameByDefault): unknown key"
)
_ELSEWHERE: Final = (
    "; it belongs beside resources, and their plugin ignores it here: move it, or take it out"
)
_IGNORED: Final = (
    "their plugin ignores it with a warning, so it is not taken over; here it would take effect"
)


@dataclass
class Files:
    """Configuration files by name, as a node's label chooses them."""

    texts: dict[str, Setting] = field(default_factory=dict[str, Setting])
    default: str = ""
    """The one of nodes without the label; empty for none of them."""
    label: str = LABEL

    @property
    def by_label(self) -> bool:
        """Whether nodes can have different configurations."""
        return len(self.texts) > 1 or bool(self.texts and not self.default)


def apart(workload: Workload) -> Files | None:
    """Return the file that was given apart from the manifest, for all nodes."""
    if workload.configuration is None:
        return None
    return Files({"config": Setting("--config", workload.configuration)}, "config")


def chosen(
    texts: dict[str, Setting], default: Setting | None, fallbacks: Sequence[str], place: str
) -> Files:
    """Return files, with the one that config-manager takes for nodes without the label."""
    names = ", ".join(texts)
    if not texts:
        return Files()
    if default and default.value:
        if str(default.value) not in texts:
            raise default.wrong(f"one of {names}")
        return Files(texts, str(default.value))
    found = {
        "named": "default" if "default" in texts else None,
        "single": next(iter(texts)) if len(texts) == 1 else None,
        "empty": "",
    }
    for one in fallbacks:
        if one not in found:
            raise Setting(f"{place}: fallback strategy", one).wrong("named, single or empty")
        if found[one] is not None:
            return Files(texts, str(found[one]))
    raise dp.ConfigError(
        f"{place}: is missing: their plugin does not start on nodes without the label {LABEL}: "
        f"name one of {names}, or add the fallback strategy empty"
    )


def of_container(workload: Workload, named: Setting | None) -> Files:
    """Return the file of ``--config-file``, or those that a config-manager beside it offers."""
    destination = str(named.value) if named else ""
    managers = dict(_managers(workload, destination))
    if not destination or workload.configuration is not None:
        return apart(workload) or Files()
    for place, variables in managers.items():
        return _managed(workload, variables, place)
    text = workload.file(destination, f"the file {destination} of --config-file")
    return Files({"config": text}, "config")


def _managers(workload: Workload, destination: str) -> Iterator[tuple[str, Mapping[str, str]]]:
    """Yield place and variables of the config-managers in the pod that write a file."""
    for path, one in siblings(workload):
        if not is_manager(one):
            continue
        workload.account.take(path)
        variables = {
            str(each.get("name")): str(each.get("value") or "")
            for each in one.get("env") or []
            if isinstance(each, Mapping)
        }
        if variables.get("CONFIG_FILE_DST") == destination:
            yield f"{workload.place}: {one.get('name')}", variables


def _managed(workload: Workload, variables: Mapping[str, str], place: str) -> Files:
    """Return the files between which a config-manager chooses."""
    source = variables.get("CONFIG_FILE_SRCDIR", "").rstrip("/")
    texts = {
        path.rpartition("/")[2]: Setting(f"{workload.place}: {path}", one.value, one.path)
        for path, one in workload.files.items()
        if path.rpartition("/")[0] == source
    }
    if not texts:
        raise dp.ConfigError(
            f"{place}: the files in {source or 'CONFIG_FILE_SRCDIR'} are not in the manifest: add "
            "their ConfigMap as a document, or give an only file with --config"
        )
    for one in texts.values():
        workload.account.take(one.path)
    found = chosen(
        texts,
        Setting(f"{place}: DEFAULT_CONFIG", variables.get("DEFAULT_CONFIG", "")),
        [one.strip() for one in variables.get("FALLBACK_STRATEGIES", "").split(",") if one.strip()],
        f"{place}: DEFAULT_CONFIG",
    )
    found.label = variables.get("NODE_LABEL") or LABEL
    return found


def content(
    name: str, given: Setting, settings: Mapping[str, Any], result: Migration
) -> dict[str, Any]:
    """Return the settings of the file ``name`` and those that override it.

    Raises:
        ConfigError: The plugin would refuse it; with all faults, and their lines.
    """
    text = str(given.value)
    if not text.strip():
        return dict(settings)
    try:
        _judge(of_text(text, given.place), apart=True)
    except dp.ConfigError as error:
        lines = str(error).splitlines()
        told = [f"{one}{_ELSEWHERE if _MISPLACED.search(one) else ''}" for one in lines]
        raise dp.ConfigError("\n".join(told)) from error
    found = checked(of_text(text, given.place), GpuSettings.from_file)
    plain = {key: one.plain() for key, one in found.items() if isinstance(one, Place)}
    flags = of_text(text, given.place).plain().get("flags") or {}
    for key in ("gfd", "useNodeFeatureAPI"):
        if flags.get(key) is not None:
            result.differs(f"{name}: flags.{key}", "for GPU feature discovery: not taken over")
    _without_ignored(plain, name, result)
    return {**plain, **settings}


def judge(settings: Mapping[str, Any], place: str) -> None:
    """Raise ``ConfigError`` unless the plugin takes a configuration."""
    _judge(of_plain(settings, place), apart=False)


def _judge(root: Place, *, apart: bool) -> None:
    """Have the plugin read a file; ``apart`` from flags and variables that may complete it."""

    class Given(GpuSettings):
        def __post_init__(self) -> None:
            if not apart:
                super().__post_init__()

        @classmethod
        @override
        def open_file(cls, path: Path) -> Place:
            return root

    Given.of_file(Path(os.devnull))  # is not read: a directory would be looked at


def _without_ignored(plain: dict[str, Any], name: str, result: Migration) -> None:
    """Take out what has no effect in their plugin and would have one here."""
    if resources := plain.pop("resources", None):
        result.differs(f"{name}: resources", f"{resources}: {_IGNORED}")
    for way, sharing in (plain.get("sharing") or {}).items():
        kept: dict[str, dict[str, Any]] = {}
        for index, one in enumerate((sharing or {}).get("resources") or []):
            for key in ("rename", "devices"):
                value = one.pop(key, None)
                if value not in (None, "all"):
                    where = f"{name}: sharing.{way}.resources[{index}].{key}"
                    result.differs(where, f"{value}: {_IGNORED}")
            # Theirs has as many replicas as the largest of several entries says.
            other = kept.setdefault(one["name"], one)
            other["replicas"] = max(other["replicas"], one["replicas"])
        if kept:
            sharing["resources"] = list(kept.values())
