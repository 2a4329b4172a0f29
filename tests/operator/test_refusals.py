"""Whatever a plugin refuses when it starts, the operator refuses before; so does the schema."""

from collections import Counter
from collections.abc import Iterator
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

import deviceplugin as dp
from cluster.real_api_server import RealApiServer, running, why_not
from deviceplugin._discovery.plugin_check import check_plugins
from deviceplugin.apiserver import ApiServerError
from deviceplugin_operator.crd import definition
from deviceplugin_operator.crd.catalogue import PLUGINS, judged, kept, written
from deviceplugin_operator.crd.specification import read
from deviceplugin_operator.manifests import template
from operators.bad_objects import BAD
from operators.crd_documents import SAMPLES, SPEC, documents, refused
from patience import eventually

SETTINGS = SPEC["properties"]
HOSTILE = (
    *("", " ", "nonsense", "kubernetes.io/x", "requests.a.b/c", "a.b/c\0", "a.b/\ud800", "\n"),
    *("A.b/c", "a.b/" + "c" * 64, "a" * 245 + "/b", "../../x", "{serial}", "{", "*", "[", "-1"),
    *("0s", "999999999d", "1e9", "null", "~", "<<", "!!x", "é" * 300, "=", "a=b", "%s", "0x"),
    "all",
)
VALUES = (
    st.sampled_from(HOSTILE)
    | st.text(max_size=20)
    | st.integers()
    | st.booleans()
    | st.none()
    | st.floats(allow_nan=False)
    | st.lists(st.sampled_from(HOSTILE), max_size=2)
)


@cache
def documents_of(plugin: str) -> SearchStrategy[Any]:
    return documents(SETTINGS[plugin])


@st.composite
def spoiled(draw: st.DrawFn, plugin: str) -> Any:
    """Return settings of which some, at any depth, have a value that they should not have."""
    document = draw(documents_of(plugin))
    for _ in range(draw(st.integers(1, 2))):
        place, key = document, draw(st.sampled_from(sorted(SETTINGS[plugin]["properties"])))
        while isinstance(inner := place.get(key), dict) and inner and draw(st.booleans()):
            place, key = inner, draw(st.sampled_from(sorted(inner)))
        items = isinstance(inner, list) and inner and draw(st.booleans())
        place[key] = [*inner[1:], draw(VALUES)] if items else draw(VALUES)
    return document


def started(plugin: str, file: Path) -> None:
    """Do what a plugin does with its file before anything is served.

    Raises:
        ConfigError: It would not start.
    """
    (entry,) = entry_points(group="deviceplugin.plugins", name=plugin)
    hosted = entry.load()()
    check_plugins([hosted.make(hosted.settings.of_file(file))])


@pytest.mark.parametrize("plugin", PLUGINS)
@settings(max_examples=20, deadline=None, suppress_health_check=[*HealthCheck])
@given(data=st.data())
def test_what_a_plugin_or_the_schema_refuses_the_operator_refuses(
    plugin: str, data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    document = data.draw(spoiled(plugin))
    not_ours = {*kept(plugin), *PLUGINS[plugin].renamed}
    ours = {key: one for key, one in document.items() if key not in not_ours}
    whole = {**template(plugin).document, **ours}
    file = tmp_path_factory.mktemp("c") / "config.yaml"
    file.write_text(written(whole))
    spec = {"plugin": plugin, plugin: ours}
    try:
        read({"metadata": {"name": "x", "uid": "u"}, "spec": spec})
    except dp.ConfigError:
        return
    started(plugin, file)
    assert judged(plugin, written(whole)) is not None


NAMES = (
    st.sampled_from(HOSTILE) | st.text(max_size=70) | st.text("abyz./*-", min_size=1, max_size=80)
)


@settings(max_examples=150, deadline=None)
@given(
    spec=st.fixed_dictionaries(
        {"plugin": st.just("custom"), "image": NAMES},
        optional={
            "nodeSelector": st.dictionaries(NAMES, NAMES, max_size=20),
            "profileLabel": NAMES,
            "profiles": st.dictionaries(NAMES, st.just({}), max_size=18),
            "components": st.lists(NAMES, max_size=2),
            "custom": st.fixed_dictionaries({"resources": st.lists(NAMES, max_size=70)}),
        },
    )
)
def test_what_the_schema_refuses_of_the_rest_the_operator_refuses(spec: Any) -> None:
    try:
        read({"metadata": {"name": "x", "uid": "u"}, "spec": spec})
    except dp.ConfigError:
        return
    assert [] == refused(SPEC, spec)


# By the API server

LEFT_TO_THE_OPERATOR = {
    *("0s", "a resource of Kubernetes for GPUs", "a resource that is too long", "both ways"),
    *("duration", "errors of FPGAs", "imex", "large settings", "mps without root"),
    "profile of the simulated plugin",
}
"""Faults that no schema says: what goes together, what is known elsewhere."""
OWNERS = "/apis/deviceplugin.dev/v1alpha1/deviceplugins"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealApiServer]:
    if why := why_not():
        pytest.skip(why)
    with running(tmp_path_factory.mktemp("real")) as server:
        crds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
        server.admin.create(crds, definition.crd())
        eventually(lambda: refusal(server, {"plugin": "gopher"}) == "")
        yield server


def refusal(server: RealApiServer, spec: Any) -> str:
    """Return why the API server does not take an object as kubectl sends it, or an empty string."""
    made = {"apiVersion": "deviceplugin.dev/v1alpha1", "kind": "DevicePlugin"}
    query = {"fieldValidation": "Strict", "dryRun": "All"}
    try:
        server.admin._ask("POST", OWNERS, query, {**made, "metadata": {"name": "x"}, "spec": spec})
    except ApiServerError as error:
        return str(error)
    return ""


@pytest.mark.xdist_group("real-api-server")
def test_a_real_api_server_refuses_what_a_schema_can_say_and_names_the_field(
    server: RealApiServer,
) -> None:
    said = {bad.fault: refusal(server, bad.spec) for bad in BAD}
    assert LEFT_TO_THE_OPERATOR == {fault for fault, why in said.items() if not why}
    odd = {
        bad.fault: said[bad.fault]
        for bad in BAD
        if said[bad.fault] and bad.field not in said[bad.fault]
    }
    assert {} == odd
    assert "must not match kubernetes" in said["a resource of Kubernetes"]
    assert "must not match ^requests" in said["a domain of Kubernetes"]


@pytest.mark.xdist_group("real-api-server")
def test_a_real_api_server_takes_all_that_is_valid(server: RealApiServer) -> None:
    assert {"": len(SAMPLES)} == Counter(
        refusal(server, yaml.safe_load(one.read_text())["spec"]) for one in SAMPLES
    )
    for image in ("a", "registry.example.com:5000/a/b", f"[::1]:5000/a/b_c:v1@sha256:{'a' * 64}"):
        label = f"{'a.' * 126}a/{'k' * 63}"
        spec = {"plugin": "gopher", "image": image, "nodeSelector": {label: "v"}}
        assert "" == refusal(server, {**spec, "profileLabel": label, "profiles": {"a": {}}})
