"""The CRD is current, within what the API server takes, and of one mind with the settings."""

import json
import math
import os
import re
from collections.abc import Iterator
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy
from jsonschema import Draft202012Validator

import deviceplugin as dp
import kustomize
from deviceplugin_operator.crd import definition
from deviceplugin_operator.crd.catalogue import CUSTOM, OWNED, PLUGINS, judged, kept, written
from deviceplugin_operator.crd.specification import SPEC
from deviceplugin_operator.manifests import components, template
from manifests.expected import expected
from operators.crd_documents import documents, refused, validator

ROOT = Path(__file__).parents[2]
DOCUMENTS = int(os.environ.get("CRD_DOCUMENTS", "30"))
"""Random documents of each plugin; the record is of 2,000."""
FILE = ROOT / "deployments/operator/crd/deviceplugins.yaml"
(FOUND,) = kustomize.documents(FILE.read_text())
(VERSION,) = FOUND["spec"]["versions"]
SCHEMA = VERSION["schema"]["openAPIV3Schema"]
SPECIFIED = SCHEMA["properties"]["spec"]["properties"]
KNOWN = {
    *("type", "properties", "required", "items", "additionalProperties", "enum", "pattern"),
    *("description", "default", "nullable", "minimum", "maximum", "minItems", "maxItems"),
    *("maxLength", "maxProperties", "allOf", "format"),
}
"""What a structural schema may have, of what is used here; beside x-kubernetes-..."""


def places(schema: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield every schema in ``schema`` with its place."""
    yield path, schema
    for key, one in schema.get("properties", {}).items():
        yield from places(one, f"{path}.{key}")
    for key in {"items", "additionalProperties"} & schema.keys():
        yield from places(schema[key], f"{path}[]")


EVERYWHERE = dict(places(SCHEMA))


def test_the_file_is_what_the_settings_make() -> None:
    assert definition.text() == FILE.read_text(), "stale: run make generate"


def test_plain_apply_takes_it() -> None:
    assert len(json.dumps(FOUND)) < 150_000  # 262,144 bytes fit into the annotation of kubectl


def test_only_what_a_structural_schema_may_have_is_used() -> None:
    odd = {
        (path, key)
        for path, one in EVERYWHERE.items()
        for key in one
        if key not in KNOWN and not key.startswith("x-kubernetes-")
    }
    assert set() == odd


def test_everything_has_a_type_or_says_why_not() -> None:
    free = ("x-kubernetes-int-or-string", "x-kubernetes-preserve-unknown-fields")
    odd = [path for path, one in EVERYWHERE.items() if "type" not in one and not set(free) & {*one}]
    assert [] == odd
    both = [
        path for path, one in EVERYWHERE.items() if {"properties", "additionalProperties"} <= {*one}
    ]
    assert [] == both


def test_everything_is_bounded_so_that_rules_have_a_cost() -> None:
    bounds = {"string": {"maxLength", "enum", "format"}, "array": {"maxItems"}}
    odd = [
        path
        for path, one in EVERYWHERE.items()
        if (needed := bounds.get(one.get("type", ""))) and not needed & {*one}
    ]
    assert [".apiVersion", ".kind"] == odd  # of every kind, and in no rule


def test_rules_of_strings_cost_less_than_the_api_server_allows() -> None:
    """It refused one of 4,096 characters, 256 in a list, in 16 profiles: 4.7 times its budget."""
    most = 16 * 256 * 4096 / 4.7
    for path, one in EVERYWHERE.items():
        if "maxLength" in one and "x-kubernetes-validations" in one:
            around = [EVERYWHERE[path[: end.start()]] for end in re.finditer(r"\[\]", path)]
            times = [outer.get("maxItems", outer.get("maxProperties")) for outer in around]
            assert one["maxLength"] * math.prod(times) < most, path


def test_patterns_are_of_re2() -> None:
    patterns = {
        one["pattern"]
        for schema in EVERYWHERE.values()
        for one in (schema, *schema.get("allOf", ()))
        if "pattern" in one
    }
    assert [] == [one for one in patterns if re.search(r"\(\?[=!<]|\\[1-9]", one)]
    assert 5 < len(patterns)


@pytest.mark.parametrize("plugin", PLUGINS)
def test_every_setting_is_in_it_or_is_the_manifests_with_a_reason(plugin: str) -> None:
    hosted = PLUGINS[plugin]
    keys = {field.name.replace("_", "-") for field in fields(hosted.settings)}
    assert kept(plugin).keys() <= keys
    assert hosted.renamed.keys() <= keys
    shown = {hosted.renamed.get(key, key) for key in keys - kept(plugin).keys()}
    assert shown == SPECIFIED[plugin]["properties"].keys()
    assert all(kept(plugin).values())


@pytest.mark.parametrize("plugin", PLUGINS)
def test_profiles_have_the_same_settings(plugin: str) -> None:
    own = SPECIFIED["profiles"]["additionalProperties"]["properties"][plugin]["properties"]
    assert own.keys() == SPECIFIED[plugin]["properties"].keys()


def test_every_plugin_that_can_be_named_is_deployed() -> None:
    deployed = {path.parent.name for path in ROOT.glob("deployments/*/kustomization.yaml")}
    assert PLUGINS.keys() <= deployed  # a new plugin is added once it is to be named
    assert [*PLUGINS, CUSTOM] == SPECIFIED["plugin"]["enum"]


def test_the_reader_and_the_crd_know_the_same_keys() -> None:
    assert SPEC.schema["properties"].keys() == SPECIFIED.keys()
    rollout = SPEC.schema["properties"]["rollout"].schema["properties"]
    assert rollout.keys() == SPECIFIED["rollout"]["properties"].keys()


def test_components_that_bring_rights_cannot_be_named() -> None:
    known = components()
    assert {"cdi", "watcher", "gpu-cdi"} <= {*known}
    assert not {"events", "evict", "node-annotation", "monitoring", "verbose"} & {*known}
    assert [*known] == SPECIFIED["components"]["items"]["enum"]


@pytest.mark.parametrize("plugin", PLUGINS)
def test_what_deployments_have_can_be_said_in_an_object(plugin: str) -> None:
    document = template(plugin).document
    said = {key: one for key, one in document.items() if key not in kept(plugin)}
    assert [] == refused(SPECIFIED[plugin], said)
    assert bool(judged(plugin, written(document))) == (document != {"devices": []})


@cache
def settings_of(plugin: str) -> tuple[SearchStrategy[Any], Draft202012Validator]:
    """Return what makes settings of a plugin, and what judges them."""
    return documents(SPECIFIED[plugin]), validator(SPECIFIED[plugin])


@pytest.mark.parametrize("plugin", PLUGINS)
@settings(max_examples=DOCUMENTS, deadline=None, suppress_health_check=[*HealthCheck])
@given(data=st.data())
def test_what_the_crd_takes_the_settings_take_but_for_what_no_schema_says(
    plugin: str, data: st.DataObject
) -> None:
    drawn, judge = settings_of(plugin)
    document = data.draw(drawn)
    assert [] == refused(judge, document)
    try:
        judged(plugin, written(template(plugin).document | document))
    except dp.ConfigError as error:
        durations = {
            key
            for key, one in SPECIFIED[plugin]["properties"].items()
            if "ms|s|m|h|d" in one.get("pattern", "")  # 0s is none
        }
        for line in str(error).splitlines():
            if "is not a resource, such as" in line:  # several settings together
                continue
            found = re.match("([a-z-]*)", line)
            assert found
            assert found[1] in expected(plugin).left_to_settings | durations | {"no"}, line


def test_columns_say_it_at_a_glance() -> None:
    columns = {one["name"]: one["jsonPath"] for one in VERSION["additionalPrinterColumns"]}
    assert ["Plugin", "Nodes", "Updated", "Ready", "Devices", "State", "Age"] == [*columns][:7]
    status = SCHEMA["properties"]["status"]["properties"]
    paths = [path.split(".")[2].partition("[")[0] for path in columns.values() if "status" in path]
    assert {*paths} <= status.keys()


def test_nothing_but_a_reason_is_left_of_what_every_manifest_owns() -> None:
    assert {"plugin-dir", "http-address"} <= OWNED.keys()
    for plugin in PLUGINS:
        assert not OWNED.keys() & SPECIFIED[plugin]["properties"].keys()
