"""Every key of an input is taken over, listed, or not understood; and no key is two of these."""

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deviceplugin.errors import ConfigError
from deviceplugin.kit.migration import Account, Migration, Workload
from deviceplugin_cli.migrate import _meaning
from deviceplugin_cli.migrate._chart_keys import CHART, OF_CHARTS
from deviceplugin_cli.migrate._compare import _by_pattern, compare
from deviceplugin_cli.migrate._containers import Found
from deviceplugin_cli.migrate._documents import Input
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
    **{key: keys.of_mark(FIELDS[kind][of]) for key, (kind, of) in CHART.items()},
    **{key: st.sampled_from(["a", {"b": True}]) for key in (*OF_CHARTS, *OF_NVIDIA)},
}


@settings(max_examples=25)
@given(contents=DAEMON_SETS)
def test_every_key_of_a_daemon_set_is_accounted_for(contents: list[Any]) -> None:
    with suppress(ConfigError):
        found = keys.check_all_keys_are_accounted_for(contents)
        spec = (0, "spec", "template", "spec", "containers", 0)
        assert "listed" == found[(*spec, "env", 0, "value")]
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
    other = daemon_set("example.com/other", SERIAL, env={"A": "$(B)", "B": "c"})
    values = {"image": {"repository": "example.com/other"}, "a": 1}
    mine = whole({}, {}, {}, {})
    source, made = keys.migrated([other, *mine, config_map("a", b="c"), values])
    assert [1] == [one.found.document.number for one in made]
    assert "DaemonSet, ConfigMap, document 3: not taken over" in made[0].migration.differences
    assert [] == source.account.left_paths()


def test_the_metadata_of_an_object_is_accounted_for() -> None:
    metadata = {"name": "p", "uid": "u", "labels": {"team": "a"}, "namespace": "n"}
    content = {"apiVersion": "a/v1", "kind": "Policy", "metadata": metadata, "status": {"a": 1}}
    source = Input([("f", {**content, "spec": {"a": 1}})])
    workload = Workload(place="f", values=content, kind="Policy", account=source.account)
    found = Found(workload, source.documents[0], {}, (0,), {})
    compare(found, Migration(peer="p", plugin="gpu", configuration={}))
    assert ["f: spec: not understood"] == source.account.left()
    assert {"namespace", "team"} == {str(path[-1]) for path, _ in source.account.dropped()}


@pytest.mark.parametrize(
    ("resources", "words"),
    [
        ({"limits": {"memory": "much"}}, "much; ours is 160Mi, and 'much' is not"),
        ({"limits": {"memory": 10**9}}, "1000000000; ours is 160Mi"),
        ({"limits": {"example.com/a": 1}}, "1; not taken over"),
        ({"requests": {"cpu": "10m"}}, ""),
    ],
)
def test_resources_are_compared(resources: dict[str, Any], words: str) -> None:
    source, _ = keys.migrated(whole({}, {}, {}, {"resources": resources}))
    said = [why for path, why in source.account.dropped() if "resources" in path]
    assert [words] == [one[: len(words)] for one in said or [""]]


def test_each_of_several_peers_lists_what_is_its_own() -> None:
    first = whole({}, {"name": "a"}, {"hostname": "a"}, {"workingDir": "/a"})
    second = whole(
        {}, {"name": "b"}, {"hostname": "b"}, {"envFrom": [{"configMapRef": {"name": "c"}}]}
    )
    pod = first[0]["spec"]["template"]["spec"]
    pod["containers"].append({**pod["containers"][0], "name": "twin", "workingDir": "/twin"})
    _, made = keys.migrated([*first, *second, config_map("c", TZ="UTC")])
    said = [
        [one for one in each.migration.differences if one.startswith(("host", "work", "Config"))]
        for each in made
    ]
    assert [
        ["host path /dev: mounted read-only, by the component host-dev", *own]
        for own in (
            ["hostname: a; not taken over", "workingDir: /a; not taken over"],
            ["workingDir: /twin; not taken over"],
            ["ConfigMap c: data.TZ: theirs does not read it", "hostname: b; not taken over"],
        )
    ] == said


@pytest.mark.parametrize(
    ("pod", "words"),
    [
        (
            {"volumes": [{"name": "v", "configMap": {"name": "c"}}]},
            "the ConfigMap c is not in the input: add it if the plugin reads its files",
        ),
        (
            {"volumes": [{"name": "v", "projected": {"sources": [{"configMap": {"name": "c"}}]}}]},
            "the ConfigMap c is not in the input: add it if the plugin reads its files",
        ),
        ({"volumes": [{"name": "v", "emptyDir": {}}]}, "not taken over; ours mounts what it needs"),
        ({"volumes": [{"name": "v", "hostPath": {"path": "/k/device-plugins/"}}]}, None),
        (
            {"tolerations": [{"operator": "Exists", "effect": "NoSchedule"}]},
            "kept by a patch; without it ours tolerates all taints",
        ),
        (
            {
                "tolerations": [
                    {"operator": "Exists", "effect": one} for one in ("NoSchedule", "NoExecute")
                ]
            },
            None,
        ),
        ({"nodeSelector": {"a": "b", "c": None}}, "kept by a patch"),
    ],
)
def test_a_key_of_a_pod_means(pod: dict[str, Any], words: str | None) -> None:
    source, (made,) = keys.migrated(whole({}, {}, pod, {}))
    (key,) = pod
    said = {why for path, why in source.account.dropped() if key in path}
    assert ({words} if words else set()) == said
    assert None not in made.comparison.pod.get("nodeSelector", {}).values()
