"""The forms of the output: what each can carry, and what several deployments are called."""

import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from deviceplugin.__main__ import main
from deviceplugin.errors import ConfigError
from deviceplugin.kit.migration import Migration, Workload
from deviceplugin_cli.migrate._compare import Comparison, Made
from deviceplugin_cli.migrate._containers import Found
from deviceplugin_cli.migrate._documents import Document
from deviceplugin_cli.migrate.output._deployments import Deployment, deployments, manifest_keys
from deviceplugin_cli.migrate.output._judge import hosted, judge
from manifests.kustomize import ROOT, kustomized
from migration.lamp import install
from migration.peers import daemon_set

SQUAT = "squat/generic-device-plugin:0.2.1"
LAMP = "lamp-plugin:1"
PROFILES = """plugin="gpu", configuration={"mig-strategy": "single"}, profile_label="gpu.example",
profiles={"shared": {"mig-strategy": "none"}, "mig_1": {}}"""
Object = dict[str, Any]


Lamp = Callable[..., tuple[int, str, str]]


@pytest.fixture
def lamp(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Lamp:
    """Return what migrates a lamp, of which a plugin makes ``fields``: status, output, errors."""

    def migrated(fields: str, *flags: str, **container: Any) -> tuple[int, str, str]:
        install(tmp_path, monkeypatch, fields)
        status = main(["migrate", write(tmp_path, daemon_set(LAMP, container=container)), *flags])
        return status, *capsys.readouterr()

    return migrated


def serial(name: str, **more: Any) -> Object:
    """Return a DaemonSet of squat's plugin."""
    device = "name: tty\ngroups: [{paths: [{path: /dev/tty}]}]"
    found = daemon_set(SQUAT, "--device", device, **more)
    found["metadata"]["name"] = name
    return found


def write(folder: Path, *documents: object) -> str:
    path = folder / "peer.yaml"
    path.write_text("\n---\n".join(yaml.safe_dump(one) for one in documents), encoding="utf-8")
    return str(path)


def migrate(folder: Path, path: str) -> Path:
    """Migrate into a folder, and return it."""
    ours = folder / "ours"
    root = os.path.relpath(ROOT / "deployments", ours.resolve())
    assert 0 == main(["migrate", path, f"--directory={ours}", f"--deployments={root}"])
    return ours


@pytest.mark.slow
def test_several_peers_are_deployed_side_by_side(tmp_path: Path) -> None:
    peers = (
        serial("tty_a", nodeSelector={"a": "1"}),
        serial("tty-a"),
        daemon_set("intel-gpu-plugin"),
    )
    path = write(tmp_path, {"apiVersion": "v1", "kind": "List", "items": [*peers]})
    manifests = kustomized(migrate(tmp_path, path))
    names = [
        (one["kind"], one["metadata"].get("namespace"), one["metadata"]["name"])
        for one in manifests
    ]
    assert len({*names}) == len(names)
    sets = [one for one in manifests if one["kind"] == "DaemonSet"]
    assert 3 == len({one["metadata"]["name"] for one in sets})
    for one in sets:
        namespace, pod = one["metadata"]["namespace"], one["spec"]["template"]["spec"]
        own = {(kind, name) for kind, where, name in names if where == namespace}
        assert ("ServiceAccount", pod["serviceAccountName"]) in own
        maps = [v["configMap"]["name"] for v in pod["volumes"] if "configMap" in v]
        assert {("ConfigMap", name) for name in maps} <= own


def test_objects_of_several_peers_are_one_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(tmp_path, serial("one"), serial("two"), daemon_set("intel-gpu-plugin"))
    assert 0 == main(["migrate", path, "--output=operator"])
    found = yaml.safe_load_all(capsys.readouterr().out)
    assert ["generic-one", "generic-two", "intelgpu"] == [one["metadata"]["name"] for one in found]
    assert 2 == main(["migrate", path, "--image=a.example/b"])
    assert "--image: there are several plugins" in capsys.readouterr().err


def test_what_is_in_the_folder_is_not_overwritten(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(tmp_path, serial("aa"))
    assert 2 == main(["migrate", path, f"--directory={tmp_path}"])
    assert f"--directory: {tmp_path}: is not empty" in capsys.readouterr().err
    assert 2 == main(["migrate", path, f"--directory={path}/x"])
    assert "Not a directory" in capsys.readouterr().err


def matches(labels: Mapping[str, str], affinity: Any) -> bool:
    """Return whether a node with labels is selected, as Kubernetes says."""
    required = affinity["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    checks = {
        "In": lambda one: labels.get(one["key"]) in one["values"],
        "NotIn": lambda one: labels.get(one["key"]) not in one["values"],
        "DoesNotExist": lambda one: one["key"] not in labels,
    }
    return any(
        all(checks[one["operator"]](one) for one in term["matchExpressions"])
        for term in required["nodeSelectorTerms"]
    )


def made(**fields: Any) -> Made:
    """Return what a plugin has made of a peer."""
    document = Document("peer.yaml", {"kind": "DaemonSet", "metadata": {"name": "x"}}, 0)
    found = Found(Workload(place="peer.yaml"), document, {}, (0,), {})
    migration = Migration(**{"peer": "p", "plugin": "gpu", "configuration": {}, **fields})
    return Made(found, migration, Comparison())


VALUES = st.text("ab_-1", max_size=3)


@given(st.lists(VALUES, unique=True, max_size=4), st.none() | VALUES)
def test_no_node_has_two_of_the_configurations_or_none(values: list[str], own: str | None) -> None:
    one = made(profile_label="l", profiles={value: {} for value in values})
    labels = {"kubernetes.io/arch": "amd64"} | ({} if own is None else {"l": own})
    found = deployments([one])
    (chosen,) = (each for each in found if matches(labels, each.pod["affinity"]))
    assert ((own or "empty") if own in values else "rest") == chosen.title or not values
    assert len(found) == len({each.name for each in found})
    assert all(63 >= len(each.name) for each in found)


def test_configurations_by_label_become_a_deployment_each(lamp: Lamp, tmp_path: Path) -> None:
    choose = "choose one of 3 configurations by the label gpu.example (shared, mig_1, or"
    assert choose in lamp(PROFILES)[2]
    ours = migrate(tmp_path, str(tmp_path / "peer.yaml"))
    text = (ours / "kustomization.yaml").read_text()
    found = {}
    for name in yaml.safe_load(text)["resources"]:
        one = yaml.safe_load((ours / name / "kustomization.yaml").read_text())
        assert (name, "gpu-device-plugin" + one["nameSuffix"]) == (one["namespace"], name)
        (change,) = yaml.safe_load(one["patches"][0]["patch"])
        found[one["nameSuffix"]] = yaml.safe_load(change["value"])
    assert {
        "-shared": {"mig-strategy": "none"},
        "-mig-1": {},
        "-rest": {"mig-strategy": "single"},
    } == found
    first = text.splitlines()[0]
    assert "# The label gpu.example of a node chooses its configuration: there is a" in first
    status, _, err = lamp(PROFILES, "--output=helm-values", f"--directory={tmp_path}/v")
    assert (2, True) == (status, "a release of the chart has each plugin once" in err)


def test_an_object_of_the_operator_follows_the_label(lamp: Lamp) -> None:
    fields = PROFILES.replace("mig_1", "mig-1")
    status, out, _ = lamp(fields, "--output=operator", "--image=a.example/gpu:1")
    assert 0 == status
    assert out.startswith("# The label gpu.example of a node chooses its configuration: the object")
    spec = yaml.safe_load(out)["spec"]
    assert ("gpu.example", "a.example/gpu:1") == (spec["profileLabel"], spec["image"])
    # What a profile does not have would be taken from the others' settings.
    default = {"fail-on-init-error": True}
    assert {"mig-strategy": "single", **default} == spec["gpu"]
    assert {
        "shared": {"gpu": {**default, "mig-strategy": "none"}},
        "mig-1": {"gpu": {"mig-strategy": "none", **default}},
    } == spec["profiles"]


def test_what_the_operator_refuses_is_not_printed(lamp: Lamp) -> None:
    status, out, err = lamp(PROFILES, "--output=operator")
    assert (2, "") == (status, out)
    assert "spec.profiles.mig_1: a name is 1 to 20 lower-case letters" in err
    assert "report this" in err


def test_without_the_operator_nobody_judges_its_objects(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(tmp_path, serial("aa"))
    info = tmp_path / "broken-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: broken\nVersion: 1.0\n")
    entry = "[console_scripts]\ndeviceplugin-operator = no_such_module:main\n"
    (info / "entry_points.txt").write_text(entry)
    monkeypatch.syspath_prepend(tmp_path)
    assert 3 == main(["migrate", path, "--output=operator"])
    assert "Not judged: deviceplugin-operator is not installed here" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"variables": {"OTHER": "x"}}, "variable OTHER: an object sets none"),
        ({"mounts": {"/a": "/b"}}, "host path /a: an object has no volumes"),
        ({"config_maps": {"aliases": {}}}, "ConfigMap aliases: an object has none"),
        ({"configuration": [1]}, "configuration: a list, where an object has settings by name"),
        (
            {"configuration": {"odd": 1}, "profile_label": "l", "profiles": {"a": {}}},
            "odd: has no default that could be named",
        ),
    ],
)
def test_an_object_loses_nothing_in_silence(lamp: Lamp, fields: Object, words: str) -> None:
    given = {"plugin": "none-such", "configuration": {}, **fields}
    text = ", ".join(f"{key}={value!r}" for key, value in given.items())
    status, _, err = lamp(text, "--output=operator")
    assert (2, True) == (status, words in err)


def test_variables_are_settings_of_an_object(lamp: Lamp) -> None:
    fields = 'plugin="gpu", configuration={}, variables={"DP_MIG_STRATEGY": "mixed"}'
    out = lamp(fields, "--output=operator")[1]
    assert "mixed" == yaml.safe_load(out)["spec"]["gpu"]["mig-strategy"]


@pytest.mark.parametrize("form", ["kustomize", "helm-values", "operator"])
def test_a_secret_stays_a_reference_that_nobody_judges(lamp: Lamp, form: str) -> None:
    name, source = "DP_MIG_STRATEGY", {"secretKeyRef": {"name": "s", "key": "k"}}
    value = f'workload.variable("{name}").value'
    env = [{"name": name, "valueFrom": source}]
    fields = f'plugin="gpu", configuration={{}}, variables={{"{name}": {value}}}'
    status, out, err = lamp(fields, f"--output={form}", env=env)
    if form == "operator":
        assert (2, True) == (status, "env: an object has no such field" in err)
        return
    assert 0 == status, err
    said = "* variable DP_MIG_STRATEGY: stays a reference to the Secret s, key k, which has"
    assert said in " ".join(out.split("\n# "))
    found = yaml.safe_load(out)
    if form == "kustomize":
        patch = yaml.safe_load(found["patches"][-1]["patch"])
        assert env == patch["spec"]["template"]["spec"]["containers"][0]["env"]
    else:
        assert env == found["gpu"]["env"]


def test_a_plugin_that_is_not_installed_judges_nothing(lamp: Lamp) -> None:
    status, out, _ = lamp('plugin="lamp", configuration={"a": 1}')
    assert 3 == status
    assert out.startswith("# Not judged: the plugin's package is not installed")


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"configuration": {"mig-strategy": "x"}}, "config.yaml:1: mig-strategy: 'x' "),
        ({"variables": {"DP_MIG_STRATEGY": "x"}}, "DP_MIG_STRATEGY: 'x' "),
        ({"config_maps": {"node-config": {"a.yaml": "mig-strategy: x"}}}, "mig-strategy: 'x' "),
        (
            {"plugin": "fpga", "config_maps": {"aliases": {"aliases.yaml": "aliases: 1"}}},
            "aliases-0.yaml:1: aliases: ",
        ),
        ({"plugin": "simulated", "configuration": {"resource": "a/b/c"}}, "'a/b/c'"),
    ],
)
def test_what_our_plugin_refuses_is_an_error_in_its_words(fields: Object, words: str) -> None:
    with pytest.raises(ConfigError, match="the result would be refused: report this") as raised:
        judge(Deployment(made(**fields), fields.get("configuration", {})))
    assert words in str(raised.value)


def test_settings_of_our_manifests_are_known() -> None:
    for path in (ROOT / "deployments").glob("*/config.yaml"):
        plugin = hosted(path.parent.name)
        if plugin is not None and plugin.resources:
            keys = yaml.safe_load(path.read_text(encoding="utf-8")).keys()
            assert {*manifest_keys(path.parent.name)} == keys - plugin.owned.keys()


def cases() -> Iterator[Path]:
    for path in sorted((Path(__file__).parent / "cases").glob("*.yaml")):
        text = path.read_text(encoding="utf-8")
        if "# plugin:" in text and "# by_label:" not in text:
            yield path


@pytest.mark.slow
def test_the_chart_takes_the_values_of_every_case(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from jsonschema import Draft7Validator

    from manifests.helm import write_chart

    folder = write_chart(tmp_path / "chart")
    schema = Draft7Validator(yaml.safe_load((folder / "values.schema.json").read_text()))
    for path in cases():
        assert main(["migrate", str(path), "--output=helm-values", "--partial"]) in {0, 3}
        values = yaml.safe_load(capsys.readouterr().out)
        assert [] == [one.message for one in schema.iter_errors(values)], path
