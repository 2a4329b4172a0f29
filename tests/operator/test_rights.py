"""What an administrator applies for DRA: what the component makes, under names of its own."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from cluster.real_api_server import running, why_not
from deviceplugin import ConfigError
from deviceplugin._dra.slices.attributes import device_classes
from deviceplugin.apiserver import ApiServerError, ForbiddenError
from deviceplugin_operator import names, rights
from deviceplugin_operator.command_line import main
from deviceplugin_operator.crd.catalogue import PLUGINS
from deviceplugin_operator.crd.specification import Wanted, read
from deviceplugin_operator.manifests import driver, template
from kustomize import DEPLOYMENTS, identity, render
from manifests.kustomize import container_of
from patience import eventually

SPACE = "plugins"
DRA = DEPLOYMENTS / "components/dra"
LAMP = {
    "plugin": "custom",
    "image": "example.com/lamp:1",
    "custom": {
        "config": {"protocol": "dra", "driver-name": "lamp.example.com"},
        "resources": ["example.com/lamp"],
    },
}


def wanted(spec: Mapping[str, Any], name: str = "a") -> Wanted:
    return read({"metadata": {"name": name, "uid": "u"}, "spec": spec})


def of(plugin: str, **settings: Any) -> Wanted:
    sample = yaml.safe_load((DEPLOYMENTS / f"operator/samples/{plugin}.yaml").read_text())["spec"]
    given = sample.get(plugin, {}) if plugin == "generic" else {}
    return wanted({"plugin": plugin, plugin: {**given, "protocol": "dra", **settings}})


def documents(text: str) -> list[Any]:
    return [*yaml.safe_load_all(text)]


@pytest.mark.parametrize("plugin", sorted(PLUGINS))
def test_a_plugin_gets_what_the_component_makes(plugin: str) -> None:
    account = f"{plugin}-device-plugin"
    rendered = render(DEPLOYMENTS / plugin, [DRA])
    before = {identity(one) for one in render(DEPLOYMENTS / plugin)}
    (daemon_set,) = (one for one in rendered if one["kind"] == "DaemonSet")
    variables = frozenset(one["name"] for one in container_of([daemon_set])["env"])
    assert daemon_set == template(plugin, (), variables, account).daemon_set
    made = documents(rights.rendered([of(plugin)], SPACE))
    found = {(one["kind"], one["metadata"]["name"].removesuffix(f".{SPACE}")): one for one in made}
    for one in (one for one in rendered if identity(one) not in before):
        kind = one["kind"]
        ours = found.get((kind, one["metadata"]["name"]), {})
        for part in ("rules", "spec") if kind != "NetworkPolicy" else ():
            if part in one and kind not in {"ClusterRole", "ValidatingAdmissionPolicyBinding"}:
                assert one[part] == ours[part], kind


def test_names_of_what_is_in_no_namespace_are_not_those_of_kubectl_apply() -> None:
    found = documents(rights.rendered([of("gpu")], SPACE))
    policies = ("dra", "claim-status")
    assert [
        ("ServiceAccount", "gpu-device-plugin"),
        ("ClusterRole", f"gpu-device-plugin:dra:{SPACE}"),
        ("ClusterRoleBinding", f"gpu-device-plugin:dra:{SPACE}"),
        *(
            (f"ValidatingAdmissionPolicy{kind}", f"gpu-device-plugin.{one}.{SPACE}")
            for one in policies
            for kind in ("", "Binding")
        ),
        ("NetworkPolicy", "gpu-device-plugin-dra"),
        ("ClusterRole", f"gpu-device-plugin:deploy:{SPACE}"),
        ("ClusterRoleBinding", f"gpu-device-plugin:deploy:{SPACE}"),
    ] == [(one["kind"], one["metadata"]["name"]) for one in found]
    assert driver("gpu") in found[1]["rules"][2]["resourceNames"]
    assert found[1]["metadata"]["name"] == found[2]["roleRef"]["name"]
    for one in (3, 5):
        assert found[one]["metadata"]["name"] == found[one + 1]["spec"]["policyName"]
    subjects = [one["subjects"][0] for one in found if "subjects" in one]
    assert ["gpu-device-plugin", "deviceplugin-operator"] == [one["name"] for one in subjects]
    spaces = {
        one["metadata"].get("namespace", SPACE) for one in [*found, *map(as_object, subjects)]
    }
    assert {SPACE} == spaces
    selected = found[7]["spec"]["podSelector"]["matchLabels"]
    pod = of("gpu").template.daemon_set["spec"]["template"]["metadata"]["labels"]
    assert selected.items() <= pod.items()


def as_object(subject: Any) -> Any:
    return {"metadata": subject}


@pytest.mark.parametrize(
    ("spec", "chosen", "classes"),
    [
        (of("gpu"), None, {}),
        (of("gpu"), ["nvidia.com/gpu"], {"nvidia-gpu.device-plugins": "nvidia.com/gpu"}),
        (of("gpu"), ["nvidia.com/mig-1g.5gb"], {"mig-1g.5gb.nvidia-gpu.device-plugins": ""}),
        (of("gpu"), ["example.com/other"], {}),
        (of("simulated"), None, {"simple-device.example.com": "example.com/simple-device"}),
        (of("simulated"), [], {}),
        (wanted(LAMP), None, {"lamp.example.com": "example.com/lamp"}),
    ],
)
def test_each_resource_that_needs_one_has_a_class(
    spec: Wanted, chosen: list[str] | None, classes: dict[str, str]
) -> None:
    made = documents(rights.rendered([spec], SPACE, chosen))
    found = {one["metadata"]["name"]: one for one in made if one["kind"] == "DeviceClass"}
    assert classes.keys() == found.keys()
    for one in found.values():
        (said,) = device_classes(spec.driver, [one["spec"]["extendedResourceName"]])
        expressions = [
            each["spec"]["selectors"][0]["cel"]["expression"].split() for each in (one, said)
        ]
        assert expressions[0] == expressions[1]


def test_a_plugin_of_others_has_an_account_of_its_own_and_keeps_its_variables() -> None:
    found = wanted(LAMP, "gpu")
    pod = found.template.daemon_set["spec"]["template"]
    assert "custom-gpu-device-plugin" == pod["metadata"]["labels"]["app.kubernetes.io/name"]
    (own,) = pod["spec"]["containers"]
    variables = {one["name"]: one.get("value") for one in own["env"]}
    path = "/var/lib/kubelet/plugins/custom-gpu-device-plugin"
    assert path == variables["DP_DRIVER_DIR"]
    assert path in {one["mountPath"] for one in own["volumeMounts"]}
    for config in (
        {},
        {"driver-name": "A"},
        {"driver-name": ["a.b"]},
        {"driver-name": "a b"},
        {"driver-name": "a" * 64},
    ):
        spec = {**LAMP, "custom": {"config": {"protocol": "dra", **config}}}
        with pytest.raises(ConfigError, match="driver-name: is needed beside protocol"):
            wanted(spec)


FILE = """
apiVersion: v1
kind: List
items:
- {kind: DevicePlugin, metadata: {name: a}, spec: {plugin: simulated, simulated: {protocol: dra}}}
- {kind: DevicePlugin, metadata: {name: b}, spec: {plugin: simulated, simulated: {protocol: dra}}}
"""


@pytest.mark.parametrize(
    ("words", "text", "said"),
    [
        (["--classes", "a*,nothing"], FILE, "--classes: 'nothing' is not a resource"),
        (["--classes", "nvidia.com/*"], FILE, "--classes: 'nvidia.com/*' is several"),
        (["--classes", 'a.b/x" || true'], FILE, "is not a resource"),
        (["--namespace", 'a"'], FILE, "--namespace 'a\"' is not the name of a namespace"),
        ([], FILE.replace("protocol: dra", "seed: 1"), "none needs rights"),
        ([], FILE.replace("protocol: dra", "protocol: both"), "spec.simulated: protocol: 'both'"),
        ([], FILE.replace("name: a", 'name: "../a"'), "../a: metadata.name: 1 to 40"),
        ([], "{", "-"),
        ([], "kind: List\nitems: 5", "none needs rights"),
        ([], "kind: List\nitems: {a: 1}", "none needs rights"),
        ([], "", "none needs rights"),
    ],
)
def test_what_is_wrong_is_named_and_nothing_is_printed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], text: str, said: str
) -> None:
    file = tmp_path / "a.yaml"
    file.write_text(text)
    with pytest.raises(SystemExit) as ended:
        main(["rights", *words, str(file)])
    out, err = capsys.readouterr()
    assert (2, "") == (ended.value.code, out)
    assert said in err


def test_objects_of_one_plugin_share_its_rights(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.yaml").write_text(FILE)
    with pytest.raises(SystemExit) as ended:
        main(["rights", "--namespace", SPACE, str(tmp_path / "a.yaml")])
    assert 0 == ended.value.code
    found = documents(capsys.readouterr().out)
    assert 11 == len(found) == len({identity(one) for one in found})
    with pytest.raises(SystemExit) as ended:
        main(["rights", str(tmp_path / "nothing.yaml")])
    assert 2 == ended.value.code


def refused(may: Callable[[str], bool]) -> bool:
    try:
        may("any")
    except ForbiddenError:
        return True
    return False


@pytest.mark.skipif(bool(why_not()), reason=why_not() or "-")
@pytest.mark.xdist_group("real-api-server")
@pytest.mark.slow
def test_a_real_api_server_takes_them_and_then_knows_the_mark(tmp_path: Path) -> None:
    with running(tmp_path) as server:
        space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SPACE}}
        head = {"apiVersion": "v1", "kind": "ServiceAccount"}
        account = {"name": "deviceplugin-operator", "namespace": SPACE}
        server.create([space, {**head, "metadata": account}])
        path = f"/api/v1/namespaces/{SPACE}/serviceaccounts/deviceplugin-operator/token"
        token = server.admin.create(path, {"spec": {}})["status"]["token"]
        operator = server.client("operator", token)

        def may(account: str) -> bool:
            kind = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview"}
            spec = {"resourceAttributes": names.deploys(account)}
            reviews = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
            return bool(operator.create(reviews, {**kind, "spec": spec})["status"]["allowed"])

        eventually(lambda: not refused(may), "the API server's own roles")
        assert not may("simulated-device-plugin")
        made = documents(rights.rendered([of("simulated"), wanted(LAMP)], SPACE))
        classes = [one for one in made if one["kind"] == "DeviceClass"]
        server.create([one for one in made if one not in classes])
        for one in classes:
            server.admin.create("/apis/resource.k8s.io/v1/deviceclasses", one)
        eventually(lambda: may("simulated-device-plugin"), "the new role")
        eventually(lambda: may("custom-a-device-plugin"), "the new role")
        assert not may("gpu-device-plugin")
        for kind in ("resourceslices", "deviceclasses"):
            with pytest.raises(ApiServerError, match="cannot list"):
                operator.list(f"/apis/resource.k8s.io/v1/{kind}")
