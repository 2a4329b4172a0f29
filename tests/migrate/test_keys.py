"""Every key of an input is taken over, listed, or not understood; and no key is two of these."""

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deviceplugin.errors import ConfigError
from deviceplugin.kit.migration import Account
from deviceplugin_cli.migrate import _meaning
from deviceplugin_cli.migrate._compare import _by_pattern
from deviceplugin_cli.migrate._fields import FIELDS, known
from migration import keys
from migration.peers import config_map, daemon_set

SERIAL = "--device=name: serial\ngroups:\n- paths: [{path: /dev/ttyUSB*}]\n"
SQUAT = "squat/generic-device-plugin:0.2.1"
NVIDIA = "nvcr.io/nvidia/k8s-device-plugin:v0.20.0"
OF_NVIDIA = ("migStrategy", "gfd", "cdi", "mps", "config", "failOnInitError")


def whole(
    spec: dict[str, Any], metadata: dict[str, Any], pod: dict[str, Any], own: dict[str, Any]
) -> list[Any]:
    """Return a DaemonSet of a peer with these keys beside those that it needs."""
    named = {"name": "peer", "image": SQUAT, "args": [SERIAL], "command": ["plugin"]}
    container = {**own, **named, "env": [{"name": "FROB", "value": "x"}, *own.get("env", [])]}
    pod = {**pod, "containers": [container, *pod.get("containers", [])]}
    template = {"metadata": metadata, "spec": pod}
    return [{**daemon_set(SQUAT), "metadata": metadata, "spec": {**spec, "template": template}}]


DAEMON_SETS = st.builds(
    whole, *map(keys.of_type, ("DaemonSetSpec", "ObjectMeta", "PodSpec", "Container"))
)
CHART_KEYS = {
    **{key: keys.of_mark(FIELDS[kind][of]) for key, (kind, of) in _meaning.CHART.items()},
    **{key: st.sampled_from(["a", {"b": True}]) for key in (*_meaning.OF_CHARTS, *OF_NVIDIA)},
}


@settings(max_examples=25)
@given(contents=DAEMON_SETS)
def test_every_key_of_a_daemon_set_is_accounted_for(contents: list[Any]) -> None:
    with suppress(ConfigError):
        found = keys.check_all_keys_are_accounted_for(contents)
        spec = (0, "spec", "template", "spec", "containers", 0)
        assert "left" == found[(*spec, "env", 0, "value")]
        assert "taken" == found[(*spec, "args", 0)]


@settings(max_examples=25)
@given(values=keys.with_some({key: one for key, one in CHART_KEYS.items() if "." not in key}))
def test_every_key_of_helm_values_is_accounted_for(values: dict[str, Any]) -> None:
    with suppress(ConfigError):
        keys.check_all_keys_are_accounted_for([{"image": {"repository": NVIDIA}, **values}])


@pytest.mark.parametrize(
    ("name", "table"),
    [
        ("ObjectMeta", _meaning.METADATA),
        ("ObjectMeta", _meaning.TEMPLATE),
        ("DaemonSetSpec", _meaning.SPEC),
        ("DaemonSetUpdateStrategy", _meaning.SPEC),
        ("PodSpec", _meaning.POD),
        ("Container", _meaning.CONTAINER),
        ("SecurityContext", _meaning.CONTAINER),
        ("PodSecurityContext", _meaning.POD),
    ],
)
def test_every_field_has_a_meaning(name: str, table: Any) -> None:
    above = {"DaemonSetUpdateStrategy": "updateStrategy."}.get(name, "")
    above = "securityContext." if name.endswith("SecurityContext") else above
    without = [
        key
        for key in FIELDS[name]
        if not _by_pattern(table, f"{above}{key}")
        and not any(one == f"{above}{key}" or one.startswith(f"{above}{key}.") for one in table)
    ]
    assert [] == [key for key in without if key not in _meaning.ELSEWHERE]


def test_all_values_of_a_mapping_are_strings() -> None:
    account = Account([("f", {"a": {"b": True}})])
    with pytest.raises(ConfigError, match=r"p: b: True is not a string: put it in quotes"):
        known(account, (0, "a"), "{}", "p")


def test_a_peer_is_found_among_others() -> None:
    other = daemon_set("example.com/other", SERIAL)
    source, made = keys.migrated([other, *whole({}, {}, {}, {}), config_map("a", b="c")])
    assert [1] == [one.found.document.number for one in made]
    assert "DaemonSet, ConfigMap: not taken over" in made[0].migration.differences
    assert [(1, "spec", "template", "spec", "containers", 0, "env", 0)] == (
        source.account.left_paths()
    )
