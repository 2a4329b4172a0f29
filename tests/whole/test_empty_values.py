"""What is empty or null in the settings of the plugins: the table of the page on settings."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest

import deviceplugin as dp
from deviceplugin._config.loading import load
from deviceplugin.tools.agent import _sections
from deviceplugin_amd.settings import AmdSettings
from deviceplugin_generic import GenericPlugin, GenericSettings
from deviceplugin_gpu.configuration.settings import GpuSettings

SETTINGS: Final = [_sections.hosted(name).settings for name in _sections.names()]
FILTERS: Final = [
    (kind, key)
    for kind in SETTINGS
    for key in ("include", "exclude", "ignore-errors")
    if key.replace("-", "_") in kind.__dataclass_fields__
]


def of_file(
    kind: type[dp.Settings],
    folder: Path,
    document: object,
    environ: Mapping[str, str] | None = None,
) -> Any:
    """Return settings of a file."""
    path = folder / "config.json"
    path.write_text(json.dumps(document))
    return load(kind, flags={}, file=path, environ=environ or {})


@pytest.mark.parametrize("kind", SETTINGS)
def test_a_file_that_says_nothing_has_the_defaults(tmp_path: Path, kind: type[dp.Settings]) -> None:
    for document in ({}, None, {"log-level": None, "poll-interval": None}):
        assert load(kind, flags={}, environ={}) == of_file(kind, tmp_path, document)
    with pytest.raises(dp.ConfigError, match="nonsense: unknown key"):
        of_file(kind, tmp_path, {"nonsense": None})


@pytest.mark.parametrize(("kind", "key"), FILTERS)
def test_an_empty_filter_is_none(tmp_path: Path, kind: type[dp.Settings], key: str) -> None:
    field = key.replace("-", "_")
    empty: tuple[object, ...] = ([], "", None)
    for value in empty:
        assert () == getattr(of_file(kind, tmp_path, {key: value}), field)
    assert () == getattr(of_file(kind, tmp_path, {}, {f"DP_{field.upper()}": ""}), field)


@pytest.mark.parametrize("key", ["sharing", "resources", "nodes"])
def test_an_empty_naming_or_sharing_of_gpus_is_none(tmp_path: Path, key: str) -> None:
    default = load(GpuSettings, flags={}, environ={})
    empty: object = [] if key == "nodes" else {}
    assert default == of_file(GpuSettings, tmp_path, {key: empty})
    assert default == of_file(GpuSettings, tmp_path, {key: None})


def test_what_can_be_none_is_none_and_anything_else_is_absent(tmp_path: Path) -> None:
    found = of_file(
        AmdSettings, tmp_path, {"state-file": None, "shares": None, "share-policy": None}
    )
    assert (None, 1, "spread") == (found.state_file, found.shares, found.share_policy)
    assert None is of_file(AmdSettings, tmp_path, {"state-file": ""}).state_file


@pytest.mark.parametrize("key", ["shares", "share-policy", "error-patience"])
def test_an_empty_string_for_a_setting_that_needs_a_value_is_an_error(
    tmp_path: Path, key: str
) -> None:
    with pytest.raises(dp.ConfigError, match=f"{key}: '' is not"):
        of_file(AmdSettings, tmp_path, {key: ""})


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        ({"groups": []}, "groups: is empty"),
        ({"groups": None}, "groups is missing"),
        ({"groups": [{"paths": []}]}, "paths: is empty"),
        ({"groups": [{"paths": None}]}, "needs one of paths, usb and select"),
        ({"groups": [{"select": {"subsystem": "tty", "not": []}}]}, "not: is empty"),
        ({"groups": [{"select": {"subsystem": "tty"}}], "env": {"A": None}}, "env.A: null is not"),
        ({"groups": [{"select": {"subsystem": "tty", "serial": "", "not": None}}]}, ""),
        ({"groups": [{"select": {"subsystem": "tty"}, "nodes": None}], "env": None}, ""),
    ],
)
def test_what_an_entry_of_the_generic_plugin_needs_cannot_be_empty(
    tmp_path: Path, entry: dict[str, object], expected: str
) -> None:
    document = {"devices": [{"name": "ab", **entry}]}
    if not expected:
        assert 1 == len(of_file(GenericSettings, tmp_path, document).device.configuration.entries)
        return
    with pytest.raises(dp.ConfigError, match=expected):
        of_file(GenericSettings, tmp_path, document)


def test_a_generic_plugin_without_any_list_is_refused(tmp_path: Path) -> None:
    with pytest.raises(dp.ConfigError, match="has no key devices: add it"):
        GenericPlugin(of_file(GenericSettings, tmp_path, None))
