"""What DevicePlugin objects may say of those who may not say everything, on a real API server."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from cluster.real_api_server import RealApiServer, running, why_not
from deviceplugin.apiserver import ApiServer, ApiServerError, ForbiddenError, InvalidError
from deviceplugin_operator.crd import definition
from deviceplugin_operator.crd.catalogue import PLUGINS
from deviceplugin_operator.manifests import components, template
from operators.crd_documents import FOLDER, SAMPLES, SPEC
from patience import eventually

OBJECTS = "/apis/deviceplugin.dev/v1alpha1/deviceplugins"
LIMITS = "/apis/deviceplugin.dev/v1alpha1/devicepluginlimits"
ACCOUNTS = "/api/v1/namespaces/default/serviceaccounts"
Json = dict[str, Any]

pytestmark = pytest.mark.xdist_group("real-api-server")


def manifests(file: str) -> list[Json]:
    return [*yaml.safe_load_all((FOLDER / file).read_text())]


(DEFAULT,) = manifests("limits/limits.yaml")
ALLOWED: Mapping[str, list[str]] = DEFAULT["spec"]
SPECIFIED = SPEC["properties"]

JUDGED = Path(__file__).with_name("judged_settings.txt").read_text()
LISTED, HARMLESS = ({*re.sub("#.*", "", part).split()} for part in JUDGED.split("\n---\n"))
"""What the policy asks a list about, and what anybody may say who may write objects."""
PRIVILEGED = {"amd-privileged", "generic-privileged", "gpu-mig", "gpu-mps", "gpu-privileged"}
HOST_PID = {"gpu-usage"}
"""As root, the pod may end processes of the host."""


def keys(schema: Json, path: str = "") -> Iterator[str]:
    """Yield the path of all that an object can say and that has no parts."""
    if "properties" in schema:
        for key, one in schema["properties"].items():
            yield from keys(one, f"{path}.{key}" if path else key)
    elif "items" in schema:
        yield from keys(schema["items"], f"{path}[]")
    else:
        yield path


def is_harmless(path: str) -> bool:
    return any(
        re.fullmatch(re.escape(one).replace(r"\*", r"[^.]+"), path) for one in HARMLESS - LISTED
    )


def test_somebody_has_judged_everything_that_an_object_can_say() -> None:
    closed = {"profiles", *PLUGINS.keys() - {*ALLOWED["plugins"]}}
    said = [
        *keys({"properties": {key: one for key, one in SPECIFIED.items() if key not in closed}})
    ]
    assert [] == [one for one in said if not is_harmless(one) and one not in LISTED]
    assert [] == [one for one in LISTED if one not in said]
    assert [] == [one for one in said if one in LISTED and is_harmless(one)]


def test_somebody_has_judged_every_component_and_none_that_is_listed_has_power() -> None:
    assert {*components()} == {*ALLOWED["components"], *PRIVILEGED, *HOST_PID}
    for name in components():
        owner = next((one for one in PLUGINS if name.startswith(f"{one}-")), "gopher")
        pod = template(owner, (name,)).daemon_set["spec"]["template"]["spec"]
        shared = {"hostPID", "hostNetwork", "hostIPC"} & pod.keys()
        assert ({"hostPID"} if name in HOST_PID else set()) == shared
        for power in ("privileged", "allowPrivilegeEscalation"):
            has = [one["securityContext"][power] for one in pod["containers"]]
            assert (name in PRIVILEGED) == any(has), name


def test_somebody_has_judged_every_plugin() -> None:
    """Another one, such as a new plugin, cannot be named where there are limits."""
    assert {*ALLOWED["plugins"]} <= {*PLUGINS}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealApiServer]:
    if why := why_not():
        pytest.skip(why)
    with running(tmp_path_factory.mktemp("real")) as server:
        kinds = [definition.crd(), *manifests("crd/limits.yaml")]
        server.create([*kinds, *manifests("limits/rbac.yaml")])
        eventually(lambda: is_served(server), "the kinds")
        (policy, binding) = manifests("limits/policy.yaml")
        group = "/apis/admissionregistration.k8s.io/v1"
        server.admin.create(f"{group}/validatingadmissionpolicies", policy)
        server.admin.create(f"{group}/validatingadmissionpolicybindings", binding)
        yield server


def is_served(server: RealApiServer) -> bool:
    try:
        return server.admin.list(OBJECTS).items == server.admin.list(LIMITS).items
    except ApiServerError:
        return False


def account(server: RealApiServer, name: str, role: str) -> ApiServer:
    """Return the API server as a new account with a cluster role sees it."""
    rbac = "rbac.authorization.k8s.io"
    metadata = {"name": name, "namespace": "default"}
    binding = {
        "apiVersion": f"{rbac}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": name},
        "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": role},
        "subjects": [{"kind": "ServiceAccount", **metadata}],
    }
    server.create([{"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata}, binding])
    token = server.admin.create(f"{ACCOUNTS}/{name}/token", {"spec": {}})["status"]["token"]
    return server.client(name, token)


@pytest.fixture(scope="module")
def author(server: RealApiServer) -> ApiServer:
    """Return what a member of a platform team has, once the policy and its limits are in force."""
    client = account(server, "author", "deviceplugin-author")
    # Without limits nothing is allowed.
    eventually(lambda: "no params found" in refused(client, {"plugin": "gopher"}), "the policy")
    server.admin.create(LIMITS, DEFAULT)
    eventually(lambda: not refused(client, {"plugin": "gopher"}), "the limits")
    return client


def an_object(spec: Json, name: str = "x") -> Json:
    kind = {"apiVersion": "deviceplugin.dev/v1alpha1", "kind": "DevicePlugin"}
    return {**kind, "metadata": {"name": name}, "spec": spec}


def refused(client: ApiServer, spec: Json) -> str:
    """Return why an object is refused, if so; it is tried only."""
    try:
        client._ask("POST", OBJECTS, {"dryRun": "All"}, an_object(spec))
    except InvalidError as error:
        return error.causes[0][1]
    except ApiServerError as error:
        return str(error)
    return ""


def entry(**more: Any) -> Json:
    """Return an object with an entry of the generic plugin."""
    groups = [{"paths": [{"path": "/dev/ttyUSB*"}]}]
    return {"plugin": "generic", "generic": {"devices": [{"name": "a1", "groups": groups, **more}]}}


def group(**keys: Any) -> Json:
    return entry(groups=[keys])


def path(path: str, kind: str = "Device") -> Json:
    return group(paths=[{"path": path, "type": kind}])


A1 = "spec.generic.devices.a1."
USB = {"vendor": "1a86", "product": "7523"}
TTY = {"subsystem": "tty", "name": "ttyUSB*"}
GPU_NAMES = {"resources": {"gpus": [{"pattern": "*", "name": "amd.com/gpu"}]}}
MIG_NAMES = {"resources": {"mig": [{"pattern": "*", "name": "amd.com/gpu"}]}}

OTHERS = {"resources": {"partitions": [{"pattern": "*", "name": "nvidia.com/gpu"}]}}


def shared(kind: str) -> Json:
    one = {"name": "nvidia.com/gpu", "replicas": 2, "rename": "amd.com/gpu"}
    return {"sharing": {kind: {"resources": [one]}}}


def of(plugin: str, **settings: Any) -> Json:
    return {"plugin": plugin, plugin: {key.replace("_", "-"): it for key, it in settings.items()}}


BAD: list[tuple[Json, str]] = [
    ({"plugin": "custom", "image": "a/b"}, "spec.plugin: custom is not among the plugins"),
    ({"plugin": "gopher", "image": "a/b"}, "spec.image: a/b is not among the images"),
    (
        {"plugin": "gpu", "components": ["gpu-cdi", "gpu-privileged"]},
        "spec.components: gpu-privileged is not among the components",
    ),
    (entry(mounts=[{"path": "/", "mountPath": "/a"}]), f"{A1}mounts: / is not among the direc"),
    (entry(mounts=[{"path": "/etc", "mountPath": "/a"}]), f"{A1}mounts: /etc is not among"),
    (path("/etc", "Mount"), f"{A1}groups.paths: /etc is not among the directories"),
    (path("/etc"), f"{A1}groups.paths: /etc is not among the paths"),
    (path("/dev/mem"), f"{A1}groups.paths: /dev/mem is not among the paths"),
    (path(" /dev/mem"), f"{A1}groups.paths:  /dev/mem is not among the paths"),
    (path("/dev/ttyUSB0/../mem"), f"{A1}groups.paths: /dev/ttyUSB0/../mem is not"),
    (path("/dev/ttyUSB/.\\./mem"), f"{A1}groups.paths: /dev/ttyUSB/.\\./mem is not"),
    (path("/dev/*"), f"{A1}groups.paths: /dev/* is not among the paths"),
    (path("/dev/[t]tyUSB0"), f"{A1}groups.paths: /dev/[t]tyUSB0 is not"),
    (group(paths=[{}]), f"{A1}groups.paths:  is not among the paths"),
    (group(usb=[USB]), f"{A1}groups.usb: usb/ is not among the subsystems"),
    (group(select={"subsystem": "mem", "name": "mem"}), f"{A1}groups.select: mem/mem is not"),
    (group(select={"subsystem": "tty"}), f"{A1}groups.select: tty/ is not among"),
    (group(select={**TTY, "name": "tty*"}), f"{A1}groups.select: tty/tty* is not among"),
    (group(select=TTY, nodes=["block"]), f"{A1}groups.nodes: block/ is not among"),
    (group(select=TTY, nodes=["tty"]), f"{A1}groups.nodes: tty/ is not among the subsystems"),
    (group(select=TTY, nodes=[{"subsystem": "vfio"}]), f"{A1}groups.nodes: vfio/ is not among"),
    (group(select=TTY, **{"with": ["/dev/kmsg"]}), f"{A1}groups.with: /dev/kmsg is not among"),
    (entry(cdi=["a.b/c=all"]), f"{A1}cdi: a.b/c=all is not among the cdi"),
    (entry(annotations={"cdi.k8s.io/x": "y"}), f"{A1}annotations: cdi.k8s.io/x is not among"),
    (entry(health={"command": ["sh", "-c", "x"]}), f"{A1}health.command: sh is not among"),
    (entry(health={"reset": ["sh", "-c", "x"]}), f"{A1}health.reset: sh is not among"),
    (of("generic", domain=["nvidia.com"]), "spec.generic.domain: nvidia.com is not among"),
    (of("gopher", resource="nvidia.com/gpu"), "spec.gopher.resource: nvidia.com/gpu is not"),
    (of("simulated", resource="amd.com/gpu"), "spec.simulated.resource: amd.com/gpu is not"),
    (of("intelgpu", resource_name="amd.com/gpu"), "spec.intelgpu.resource-name: amd.com/gpu is"),
    (of("rdma", resource_prefix="amd.com"), "spec.rdma.resource-prefix: amd.com is not among"),
    (
        of("rdma", resourceList=[{"resourceName": "a", "resourcePrefix": "amd.com"}]),
        "spec.rdma.resourceList.resourcePrefix: amd.com is not among the domains",
    ),
    (of("gpu", **GPU_NAMES), "spec.gpu.resources.gpus.name: amd.com/gpu is not among the domains"),
    (of("gpu", **MIG_NAMES), "spec.gpu.resources.mig.name: amd.com/gpu is not among the domains"),
    (of("amd", **OTHERS), "spec.amd.resources.partitions.name: nvidia.com/gpu is not among"),
    (of("intelgpu", **GPU_NAMES), "spec.intelgpu.resources.gpus.name: amd.com/gpu is not among"),
    (of("gpu", **shared("mps")), "spec.gpu.sharing.mps.rename: amd.com/gpu is not among"),
    (of("gpu", **shared("timeSlicing")), "spec.gpu.sharing.timeSlicing.rename: amd.com/gpu is"),
    *[
        (
            {"plugin": plugin, plugin: {key: "/a"}},
            f"spec.{plugin}.{key}: /a: {plugin}.{key} is not among the settings",
        )
        for plugin, _, key in (
            one.partition(".")
            for one in sorted(LISTED)
            if re.search(r"(-dir|-root|-path|-prefix)$", one) and "resource-" not in one
        )
    ],
    (
        of("simulated", **{"plugin-name": "a"}),
        "spec.simulated.plugin-name: a: simulated.plugin-name is not among",
    ),
]


@pytest.mark.parametrize(("spec", "said"), BAD)
def test_what_has_power_over_the_host_is_refused_by_its_place_and_its_value(
    author: ApiServer, spec: Json, said: str
) -> None:
    assert f"denied request: devicepluginlimits/default: {said}" in refused(author, spec)


@pytest.mark.parametrize(("spec", "said"), [one for one in BAD if one[0]["plugin"] in one[0]])
def test_the_settings_of_a_profile_are_no_way_around(
    author: ApiServer, spec: Json, said: str
) -> None:
    plugin = spec["plugin"]
    own = {"plugin": plugin, "profileLabel": "a", "profiles": {"p": {plugin: spec[plugin]}}}
    assert said.replace("spec.", "spec.profiles.p.", 1) in refused(author, own)


def test_all_that_is_wrong_is_said_at_once(author: ApiServer) -> None:
    spec = {**entry(cdi=["a.b/c=d"]), "image": "a/b", "components": ["gpu-privileged"]}
    assert refused(author, spec).endswith(
        "devicepluginlimits/default: spec.components: gpu-privileged is not among the components; "
        f"spec.image: a/b is not among the images; {A1}cdi: a.b/c=d is not among the cdi"
    )


@pytest.mark.parametrize("file", SAMPLES, ids=lambda one: one.stem)
def test_a_sample_is_accepted_unless_it_is_custom_or_privileged(
    author: ApiServer, file: Path
) -> None:
    said = refused(author, yaml.safe_load(file.read_text())["spec"])
    assert (file.stem in {"amd", "custom"}) == bool(said)


@pytest.mark.parametrize(
    ("changed", "spec"),
    [
        ({"plugins": ["custom"], "images": ["a.b/c/"]}, {"plugin": "custom", "image": "a.b/c/d"}),
        ({"images": ["a.b/c:"]}, {"plugin": "gopher", "image": "a.b/c:1"}),
        ({"components": ["amd-privileged"]}, {"plugin": "amd", "components": ["amd-privileged"]}),
        ({"directories": ["/srv/a"]}, entry(mounts=[{"path": "/srv/a", "mountPath": "/b"}])),
        ({"directories": ["/srv/a"]}, entry(mounts=[{"path": "/srv/a/{serial}"}])),
        ({"directories": ["/srv/a"]}, path("/srv/a/*", "Mount")),
        ({"paths": ["/dev/tpm"]}, path("/dev/tpm0")),
        ({"paths": ["/dev/kfd"]}, group(select=TTY, **{"with": ["/dev/kfd"]})),
        ({"subsystems": ["usb/"]}, group(usb=[USB], nodes=[TTY])),
        ({"subsystems": ["sound/", "tty/"]}, group(select=TTY, nodes=["tty", "sound"])),
        ({"subsystems": ["hidraw/"]}, group(select={"subsystem": "hidraw"})),
        ({"cdi": ["a.b/c="]}, entry(cdi=["a.b/c=d"])),
        ({"annotations": ["a.b/"]}, entry(annotations={"a.b/c": "d"})),
        ({"commands": ["/bin/check"]}, entry(health={"command": ["/bin/check", "-v"]})),
        ({"domains": ["nvidia.com"]}, of("generic", domain=["nvidia.com"])),
        ({"settings": ["gpu.driver-root"]}, of("gpu", driver_root="/run/nvidia/driver")),
    ],
)
def test_what_an_administrator_lists_is_allowed(
    server: RealApiServer, author: ApiServer, changed: Json, spec: Json
) -> None:
    if "mounts" in str(spec):
        spec["generic"]["devices"][0]["mounts"][0].setdefault("mountPath", "/b")
    assert "is not among" in refused(author, spec)
    more = {key: [*ALLOWED[key], *values] for key, values in changed.items()}
    server.admin.merge(f"{LIMITS}/default", {"spec": more})
    eventually(lambda: not refused(author, spec), "the longer list")
    server.admin.merge(f"{LIMITS}/default", {"spec": {key: ALLOWED[key] for key in changed}})
    eventually(lambda: refused(author, spec), "the list as it was")


def test_a_beginning_is_not_that_of_something_else(
    server: RealApiServer, author: ApiServer
) -> None:
    changed = {"directories": ["/srv/a"], "images": ["a.b/c/"]}
    server.admin.merge(f"{LIMITS}/default", {"spec": changed})
    good = entry(mounts=[{"path": "/srv/a/b", "mountPath": "/b"}])
    eventually(lambda: not refused(author, good), "the longer list")
    assert "/srv/ab is not" in refused(
        author, entry(mounts=[{"path": "/srv/ab", "mountPath": "/b"}])
    )
    assert "a.b/cd/e is not" in refused(author, {"plugin": "gopher", "image": "a.b/cd/e"})
    server.admin.merge(f"{LIMITS}/default", {"spec": {"directories": [], "images": []}})
    eventually(lambda: refused(author, good), "the list as it was")


@pytest.mark.parametrize(
    "wrong",
    [
        {"images": ["registry.example.com"]},
        {"paths": ["/"]},
        {"paths": ["/dev/"]},
        {"paths": ["/dev/../"]},
        {"directories": ["/"]},
        {"directories": ["/srv/"]},
        {"directories": ["/srv/.."]},
        {"subsystems": ["tty"]},
        {"annotations": [""]},
        {"commands": ["sh"]},
        {"settings": ["driver-root"]},
    ],
)
def test_a_limit_that_allows_more_than_it_seems_is_refused(
    server: RealApiServer, author: ApiServer, wrong: Json
) -> None:
    assert author is not None
    with pytest.raises(ApiServerError, match=next(iter(wrong))):
        server.admin.merge(f"{LIMITS}/default", {"spec": wrong})


def test_an_administrator_says_what_they_like_and_an_author_cannot_change_it(
    server: RealApiServer, author: ApiServer
) -> None:
    spec = {"plugin": "custom", "image": "a/b"}
    server.admin.create(OBJECTS, an_object(spec, "theirs"))
    with pytest.raises(ApiServerError, match="custom is not among"):
        author.merge(f"{OBJECTS}/theirs", {"spec": {"paused": True}})
    author.merge(f"{OBJECTS}/theirs", {"metadata": {"labels": {"a": "b"}}})
    server.admin.delete(f"{OBJECTS}/theirs")


def test_a_good_object_cannot_be_changed_to_a_bad_one(author: ApiServer) -> None:
    author.create(OBJECTS, an_object({"plugin": "gopher"}, "mine"))
    with pytest.raises(ApiServerError, match="a/b is not among the images"):
        author.merge(f"{OBJECTS}/mine", {"spec": {"image": "a/b"}})
    author.merge(f"{OBJECTS}/mine", {"spec": {"gopher": {"variable": "G"}}})
    author.delete(f"{OBJECTS}/mine")


def test_who_has_the_verb_unrestricted_is_not_asked(server: RealApiServer) -> None:
    rule = {
        "apiGroups": ["deviceplugin.dev"],
        "resources": ["deviceplugins"],
        "verbs": ["create", "unrestricted"],
    }
    role = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole"}
    server.create([{**role, "metadata": {"name": "free"}, "rules": [rule]}])
    free = account(server, "free", "free")
    spec = {"plugin": "custom", "image": "a/b"}
    eventually(lambda: not refused(free, spec), "the role")


@pytest.mark.parametrize(
    ("plugin", "key"),
    [
        (plugin, key)
        for plugin in PLUGINS
        for key, one in SPECIFIED[plugin]["properties"].items()
        if one.get("nullable")
    ],
)
def test_nothing_in_place_of_a_value_is_as_if_it_were_not_there(
    author: ApiServer, plugin: str, key: str
) -> None:
    assert "" == refused(author, {"plugin": plugin, plugin: {key: None}})


def test_an_author_cannot_change_the_limits(author: ApiServer) -> None:
    assert ALLOWED == author.get(f"{LIMITS}/default")["spec"]
    with pytest.raises(ForbiddenError):
        author.merge(f"{LIMITS}/default", {"spec": {"plugins": ["custom"]}})


@pytest.mark.parametrize(
    ("groups", "paths", "said"),
    [(4, 1, ""), (5, 1, "more than 1024 groups are too many"), (4, 100, "cost limit exceeded")],
)
def test_a_large_object_is_refused_before_it_costs_much(
    author: ApiServer, groups: int, paths: int, said: str
) -> None:
    one = {"paths": [{"path": "/dev/ttyUSB0"}] * paths}
    entries = [{"name": f"a{number}", "groups": [one] * groups} for number in range(256)]
    found = refused(author, of("generic", devices=entries))
    assert said in found if said else "" == found
