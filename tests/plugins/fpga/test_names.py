"""Names for FPGA functions on a whole cluster: what a real API server makes of pods."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cluster.real_api_server import RealApiServer, running, why_not
from deviceplugin.apiserver import ApiServerError, ForbiddenError, InvalidError, NotFoundError
from manifests.kustomize import overlay, render
from patience import eventually

pytestmark = [
    pytest.mark.skipif(bool(why_not()), reason=why_not() or "-"),
    pytest.mark.xdist_group("real-api-server"),
]
Json = dict[str, Any]
INTERFACE = "ce48969398f05f33946d560708be108a"
REGION = f"region-{INTERFACE}"
AES, SHA = "d8424dc4a4a3c413f89e433683f9040b", "f7df405cbd7acf7222f144b0b93acd18"
PORT = "af-ce4.d84.zkiWk5jwXzOUbVYHCL4QithCTcSko8QT-J5DNoP5BAs"
NAMES: dict[str, Json] = {
    "aes": {"resource": REGION, "function": AES},
    "sha": {"resource": REGION, "function": SHA},
    "card": {"resource": REGION},
    "done": {"resource": PORT},
}
PODS = "/api/v1/namespaces/default/pods"
OBJECTS = "/apis/deviceplugin.dev/v1alpha1/fpganames"
KINDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/fpganames.deviceplugin.dev"


def name(called: str, **spec: Any) -> Json:
    kind = {"apiVersion": "deviceplugin.dev/v1alpha1", "kind": "FpgaName"}
    return {**kind, "metadata": {"name": called}, "spec": spec}


def install(server: RealApiServer) -> None:
    for called, spec in NAMES.items():
        server.admin.create(OBJECTS, name(called, **spec))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealApiServer]:
    root = tmp_path_factory.mktemp("real")
    with running(root) as server:
        (root / "m").mkdir()
        found = render(overlay(root / "m", "fpga", "fpga-names"))
        wanted = ("CustomResourceDefinition", "MutatingAdmission", "ValidatingAdmission")
        server.create([one for one in found if one["kind"].startswith(wanted)])
        account = {"apiVersion": "v1", "kind": "ServiceAccount"}
        server.create([{**account, "metadata": {"name": "default", "namespace": "default"}}])
        eventually(lambda: is_served(server), "the kind")
        install(server)
        eventually(lambda: made(server, container(aes=1))[0]["resources"] == amounts(1), "it")
        eventually(lambda: refused(server, container(aes=65)), "the other policy")
        yield server


def is_served(server: RealApiServer) -> bool:
    try:
        server.admin.list(OBJECTS)
    except NotFoundError:
        return False
    return True


def container(env: list[Json] | None = None, region: int = 0, **devices: int | str) -> Json:
    """Return a container that asks for names, and for ``region`` cards by the long name."""
    wanted = {**devices, **({REGION: region} if region else {})}
    limits = {f"fpga.intel.com/{called}": str(count) for called, count in wanted.items()}
    more = {"env": env} if env else {}
    return {"image": "none", "resources": {"limits": limits}, **more}


def pod(*containers: Json, first: tuple[Json, ...] = ()) -> Json:
    spec = {
        "automountServiceAccountToken": False,
        "containers": [{"name": f"c{number}", **one} for number, one in enumerate(containers)],
        "initContainers": [{"name": f"i{number}", **one} for number, one in enumerate(first)],
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": spec}


def made(server: RealApiServer, *containers: Json, first: tuple[Json, ...] = ()) -> list[Json]:
    """Return the containers of a pod as the API server would store it; it is only tried."""
    item = pod(*containers, first=first)
    spec = server.admin._ask("POST", PODS, {"dryRun": "All"}, item)["spec"]
    return [*spec.get("initContainers", ()), *spec["containers"]]


def refused(server: RealApiServer, *containers: Json, first: tuple[Json, ...] = ()) -> str:
    """Return why a pod is refused, if so."""
    try:
        made(server, *containers, first=first)
    except (ForbiddenError, InvalidError) as error:
        return str(error)
    return ""


def amounts(count: int, resource: str = REGION) -> Json:
    own = {f"fpga.intel.com/{resource}": str(count)}
    return {"limits": own, "requests": own}


def programs(*functions: str, start: int = 1) -> list[Json]:
    return [
        {"name": f"FPGA_{kind}_{number}", "value": value}
        for number, function in enumerate(functions, start)
        for kind, value in (("REGION", INTERFACE), ("AFU", function))
    ]


OWN = {"name": "A", "value": "b"}


@pytest.mark.parametrize(
    ("asked", "resources", "env"),
    [
        (container(aes=1), amounts(1), programs(AES)),
        (container(done=2), amounts(2, PORT), None),
        (container(card=1), amounts(1), None),
        (container(card=1, region=2), amounts(3), None),
        (container([OWN], aes=2), amounts(2), [OWN, *programs(AES, AES, start=2)]),
        (container(aes="0"), amounts(0, "aes"), None),
    ],
    ids=["function", "port", "card", "card-beside-the-long-name", "own-variables", "nothing"],
)
def test_a_name_becomes_the_resource_and_the_functions_to_program(
    server: RealApiServer, asked: Json, resources: Json, env: list[Json] | None
) -> None:
    (found,) = made(server, asked)
    assert (resources, env) == (found["resources"], found.get("env"))


def test_several_names_of_one_region_are_added_up(server: RealApiServer) -> None:
    (found,) = made(server, container(aes=1, sha=2))
    assert amounts(3) == found["resources"]
    assert sorted([AES, SHA, SHA]) == sorted(
        one["value"] for one in found["env"] if "AFU" in one["name"]
    )
    assert len({one["name"] for one in found["env"]}) == len(found["env"])


def test_init_containers_have_names_too(server: RealApiServer) -> None:
    sidecar = {**container(sha=1), "restartPolicy": "Always"}
    first, second, main = made(server, container(), first=(container(aes=1), sidecar))
    assert (programs(AES), programs(SHA)) == (first["env"], second["env"])
    assert {} == main["resources"]


def test_other_resources_and_pods_are_not_touched(server: RealApiServer) -> None:
    limits = {"cpu": "1", "nvidia.com/gpu": "1", "fpga.intel.com/unknown": "1"}
    (found,) = made(server, {"image": "none", "resources": {"limits": limits}})
    assert limits == found["resources"]["limits"]
    plain, other = made(server, {"image": "none"}, container(aes=1))
    assert ({}, amounts(1)) == (plain["resources"], other["resources"])


def peak(server: RealApiServer) -> int:
    """Return the most memory that the API server has had, in MiB."""
    status = Path(f"/proc/{server._process.pid}/status").read_text()
    (kibibytes,) = re.findall(r"VmHWM:\s*(\d+) kB", status)
    return int(kibibytes) // 1024


TOO_MANY = "a pod can ask for at most 64 of fpga.intel.com/aes, all its containers together"


def test_no_number_of_a_pod_takes_memory_of_the_api_server(server: RealApiServer) -> None:
    before = peak(server)
    # Upwards, so that a policy that makes a list of it fails before it needs 64 GB.
    for count in ("100k", "1M", "10M", "1G", "1e9", "1Ei", "9223372036854775807", "1e30"):
        refused(server, container(aes=count))
        refused(server, container(), first=(container(aes=count),))
        refused(server, container(aes=count), container(aes=f"-{count}"))
        refused(server, *[container(aes=count, sha=64)] * 50)
        assert peak(server) - before < 150, count


def test_the_number_is_that_of_all_containers_together(server: RealApiServer) -> None:
    most = made(server, *[container(aes=1)] * 32, first=(container(aes=32),))
    assert [amounts(32), *[amounts(1)] * 32] == [one["resources"] for one in most]
    assert programs(*[AES] * 32) == most[0]["env"]
    assert TOO_MANY in refused(server, *[container(aes=1)] * 33, first=(container(aes=32),))
    assert TOO_MANY in refused(server, *[container(aes=64)] * 100)
    assert TOO_MANY in refused(server, container(aes="1G"))
    assert amounts(128) == made(server, container(aes=64, sha=64))[0]["resources"]


def test_a_pod_of_more_containers_than_anybody_has_is_left_alone(server: RealApiServer) -> None:
    plain = [container()] * 127
    assert amounts(1) == made(server, container(aes=1), *plain)[0]["resources"]
    found = made(server, container(aes=1), *plain, first=(container(),))
    assert amounts(1, "aes") == found[1]["resources"]


@pytest.mark.parametrize("count", ["-1", "0.5", "abc", ""])
def test_a_number_that_no_pod_can_have_is_refused_as_ever(
    server: RealApiServer, count: str
) -> None:
    assert "" != refused(server, container(aes=count))
    only = {"image": "none", "resources": {"requests": {"fpga.intel.com/aes": "1G"}}}
    assert "Limit must be set" in refused(server, only)


def test_templates_keep_the_name_so_only_pods_show_the_resource(server: RealApiServer) -> None:
    labels = {"a": "b"}
    template = {"metadata": {"labels": labels}, "spec": pod(container(aes=1))["spec"]}
    item = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "d"},
        "spec": {"selector": {"matchLabels": labels}, "template": template},
    }
    path = "/apis/apps/v1/namespaces/default/deployments"
    found = server.admin._ask("POST", path, {"dryRun": "All"}, item)
    (kept,) = found["spec"]["template"]["spec"]["containers"]
    assert {"fpga.intel.com/aes": "1"} == kept["resources"]["limits"]


@pytest.mark.parametrize(
    ("called", "spec", "said"),
    [
        ("x", {}, "spec.resource: Required value"),
        ("x", {"resource": "fpga.intel.com/x"}, "should match"),
        ("x", {"resource": REGION, "function": "soon"}, "spec.function"),
        ("x", {"resource": PORT, "function": AES}, "function is programmed into a region"),
        ("region-x", {"resource": REGION}, "names that begin with af- or region- are the plugin's"),
        ("x", {"resource": "x"}, "a name is not its own resource"),
        ("x" * 64, {"resource": REGION}, "has at most 63 characters"),
    ],
)
def test_a_name_that_cannot_be_meant_is_refused(
    server: RealApiServer, called: str, spec: Json, said: str
) -> None:
    with pytest.raises(InvalidError) as error:
        server.admin.create(OBJECTS, name(called, **spec))
    assert said in str(error.value)


def test_a_name_that_is_added_changed_or_deleted_holds_for_new_pods(server: RealApiServer) -> None:
    def resource() -> Json:
        found: Json = made(server, container(new=1))[0]["resources"]
        return found

    assert amounts(1, "new") == resource()
    server.admin.create(OBJECTS, name("new", resource=PORT))
    eventually(lambda: resource() == amounts(1, PORT))
    server.admin.merge(f"{OBJECTS}/new", {"spec": {"resource": REGION}})
    eventually(lambda: resource() == amounts(1))
    server.admin.delete(f"{OBJECTS}/new")
    eventually(lambda: resource() == amounts(1, "new"))


def test_without_the_kind_pods_are_made_as_they_are_and_with_it_again_rewritten(
    server: RealApiServer,
) -> None:
    kind = server.admin.get(KINDS)
    server.admin.delete(KINDS)
    try:
        eventually(lambda: not is_served(server))
        eventually(lambda: made(server, container(aes=1))[0]["resources"] == amounts(1, "aes"))
        assert [{}] == [one["resources"] for one in made(server, {"image": "none"})]
    finally:
        metadata = {"name": kind["metadata"]["name"]}
        fresh = {**kind, "metadata": metadata}
        eventually(lambda: is_created(server, fresh))
        eventually(lambda: is_served(server))
        install(server)
    eventually(lambda: made(server, container(aes=1))[0]["resources"] == amounts(1), timeout=90)


def is_created(server: RealApiServer, kind: Json) -> bool:
    try:
        server.admin.create(KINDS.rpartition("/")[0], kind)
    except ApiServerError:
        return False
    return True
