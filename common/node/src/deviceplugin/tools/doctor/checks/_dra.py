"""What DRA needs: directories and records on the node, the cluster, and the container runtime."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from deviceplugin._dra.claims.claim_files import file_of
from deviceplugin._dra.claims.record import OtherVersionError, Record
from deviceplugin._dra.serving.server import SERVICE_SOCKET
from deviceplugin.checks import Finding, Node, failure, ok, runtime_config, unknown, warning
from deviceplugin.errors import ConfigError
from deviceplugin.tools.doctor._sockets import State, state_of
from deviceplugin.tools.doctor.checks._directories import usable

if TYPE_CHECKING:
    from deviceplugin.apiserver import ApiServer

_CLAIMS: Final = "claims"
_LOST: Final = (
    "the driver does not know what this claim has: it could give its devices to another claim, "
    "and does not clean them up."
)

_ASIDE: Final = (
    "the devices of a claim that the kubelet names are given to nobody else, and are not cleaned "
    "up."
)
_OTHER: Final = "use the release that wrote it, or delete the pod that has the claim."
_GROUP: Final = "resource.k8s.io"
_API: Final = f"/apis/{_GROUP}"
_AUTHORIZATION: Final = "authorization.k8s.io/v1"
_RIGHTS: Final = (
    *(f"{verb} resourceslices" for verb in ("list", "watch", "create", "update", "delete")),
    "get resourceclaims",
)
_COMPONENT: Final = "apply the ClusterRole and its binding of the component dra."
_EXTENDED: Final = (
    "kubectl get deviceclass -o yaml: a class that was created with extendedResourceName has it "
    "only if the feature DRAExtendedResource is on, as by default from Kubernetes 1.36."
)
_RUNTIME: Final = "container runtime"
_STANDARD: Final = ("/etc/cdi", "/var/run/cdi")
_ENABLE: Final = (
    "set enable_cdi = true in the section of containerd's CRI plugin, and restart containerd; or "
    "use containerd 2 or CRI-O."
)


def drivers(node: Node) -> Iterator[Finding]:
    wanted = node.settings.protocol == "dra"
    path = node.at(node.settings.driver_dir)
    drivers = sorted(one.parent for one in path.glob(f"*/{_CLAIMS}")) if path.is_dir() else []
    if not wanted and not drivers:
        yield ok(path, "no driver has claims here; only protocol=dra needs it")
        return
    needed = {path: "a driver cannot record the claims that it prepares."}
    if wanted:
        needed[node.at(node.settings.cdi_dir)] = "containers get nothing through DRA."
    for directory, means in needed.items():
        do = "mount it at the same path as on the node (DirectoryOrCreate)."
        missing = failure(directory, "does not exist", means=means, do=do)
        yield from usable(node, directory, missing)
    for driver in drivers:
        yield from _driver(node, driver)


def _driver(node: Node, directory: Path) -> Iterator[Finding]:
    records: dict[Path, Record] = {}
    for path in sorted((directory / _CLAIMS).iterdir()):
        yield from _record(path, records)
    for path, record in records.items():
        file = node.at(node.settings.cdi_dir) / file_of(directory.name, record.claim.uid)
        if record.document is not None and not file.exists():
            yield failure(
                path,
                f"{record.claim} is prepared, but there is no {file}",
                means="its containers cannot start again: 'unresolvable CDI devices'.",
                do="start the driver, which writes the file again; it watches the directory.",
            )
    if records and state_of(directory / SERVICE_SOCKET, node.timeout / 10) is State.DEAD:
        yield warning(
            directory,
            f"nobody listens on {SERVICE_SOCKET}, and {len(records)} claims are prepared",
            means="pods with these claims stay Terminating when they are deleted.",
            do="start the driver again. Before a driver is removed, run deviceplugin drain.",
        )
    elif records:
        yield ok(directory, f"serves, and has {len(records)} prepared claims")
    else:
        yield ok(directory, "has no prepared claims")


def _record(path: Path, records: dict[Path, Record]) -> Iterator[Finding]:
    """Add the record at ``path``, or yield what is wrong with it."""
    if path.name.endswith(".json.bad"):
        found = "was not a readable record of a claim, and has been set aside"
        do = "delete the pod that has the claim; the driver removes the file then."
        yield failure(path, found, means=_ASIDE, do=do)
    elif path.suffix == ".json" and not path.name.startswith("."):
        try:
            records[path] = Record.read(json.loads(path.read_bytes()))
        except OtherVersionError as error:
            yield failure(path, str(error), means=_ASIDE, do=_OTHER)
        except (ValueError, RecursionError) as error:
            do = "delete the pod that has the claim, then this file, and restart the driver."
            yield failure(path, str(error), means=_LOST, do=do)


def cluster(node: Node) -> Iterator[Finding]:
    settings = node.settings
    if settings.protocol != "dra" and not settings.api_server:
        yield ok("API server", "is not asked; only protocol=dra needs it")
        return
    from deviceplugin.apiserver import ApiServer, ApiServerError, ForbiddenError

    timeout, url = node.timeout, settings.api_server
    try:
        api = ApiServer(url, timeout=timeout) if url else ApiServer.of_pod(timeout=timeout)
    except ConfigError as error:
        yield unknown("API server", str(error), "run it in the plugin's pod, or set api-server.")
        return
    try:
        yield _is_served(api)
        yield from _rights(api)
    except ApiServerError as error:
        means = "claims cannot be read and slices cannot be written: pods with claims wait."
        forbidden = isinstance(error, ForbiddenError)
        do = _COMPONENT if forbidden else "check the network and policies."
        yield failure(api.url, str(error), means=means, do=do)
        return
    try:
        yield _extended(api)
    except ApiServerError as error:
        yield unknown("feature DRAExtendedResource", str(error), _EXTENDED)


def _is_served(api: "ApiServer") -> Finding:
    from deviceplugin.apiserver import NotFoundError

    try:
        api.get(f"{_API}/v1")
    except NotFoundError:
        return failure(
            f"{_GROUP}/v1",
            "is not served",
            means="slices and claims need it: no pod gets a device through DRA.",
            do="use Kubernetes 1.34 or newer, or protocol=device-plugin.",
        )
    return ok(f"{_GROUP}/v1", "is served")


def _rights(api: "ApiServer") -> Iterator[Finding]:
    denied = [right for right in _RIGHTS if not _may(api, *right.split())]
    if denied:
        yield failure(
            "rights of this account",
            f"it may not {', '.join(denied)}",
            means="claims cannot be prepared, or devices are not offered.",
            do=_COMPONENT,
        )
    else:
        yield ok("rights of this account", "suffice for claims and slices")


def _may(api: "ApiServer", verb: str, resource: str) -> bool:
    asked = {"group": _GROUP, "resource": resource, "verb": verb}
    kind = {"apiVersion": _AUTHORIZATION, "kind": "SelfSubjectAccessReview"}
    review: Any = {**kind, "spec": {"resourceAttributes": asked}}
    made = api.create(f"/apis/{_AUTHORIZATION}/selfsubjectaccessreviews", review)
    return bool((made.get("status") or {}).get("allowed"))


def _extended(api: "ApiServer") -> Finding:
    classes = api.list(f"{_API}/v1/deviceclasses").items
    named = sorted(
        f"{one['spec']['extendedResourceName']} by {one['metadata']['name']}"
        for one in classes
        if one.get("spec", {}).get("extendedResourceName")
    )
    if named:
        return ok("extended resources", f"are given through DRA: {', '.join(named)}")
    return warning(
        "extended resources",
        f"none of {len(classes)} DeviceClasses has an extendedResourceName",
        means="a pod gets devices through claims only, not by limits such as example.com/gpu: 1.",
        do="apply the DeviceClass of the component dra; if it has the field and loses it, turn on "
        "the feature DRAExtendedResource (Kubernetes 1.36 has it on).",
    )


def runtime(node: Node) -> Iterator[Finding]:
    if node.settings.protocol != "dra":
        yield ok(_RUNTIME, "is not examined for CDI; only protocol=dra needs it")
        return
    config = runtime_config(node)
    yield from config.findings()
    if not config.is_known:
        return
    if config.cdi is None:
        yield unknown(
            config.source,
            "does not say whether CDI is on; it is from containerd 2, and off in containerd 1.7",
            f"with containerd --version of 1.7, {_ENABLE}",
        )
    elif not config.cdi:
        means = "pods with claims start without their devices, or fail."
        yield failure(config.source, "CDI is off", means=means, do=_ENABLE)
    else:
        yield ok(config.source, "CDI is on")
    directory = str(node.settings.cdi_dir)
    known = config.cdi_dirs or _STANDARD
    if _plain(directory) not in map(_plain, known):
        yield failure(
            config.source,
            f"it looks for CDI files in {', '.join(known)}, and not in {directory}",
            means="pods with claims fail: 'unresolvable CDI devices'.",
            do="add the directory to cdi_spec_dirs, or set cdi-dir to one of these.",
        )


def _plain(path: str) -> str:
    """Return ``path`` without what usually is a link: /var/run is /run."""
    return path.rstrip("/").replace("/var/run/", "/run/", 1)
