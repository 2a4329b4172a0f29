"""Reading what is to be migrated from a cluster. Nothing is changed in it."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from deviceplugin.apiserver import ApiServer, ApiServerError, ForbiddenError, NotFoundError
from deviceplugin.kit.log import few
from deviceplugin_cli.fleet._question import Reader
from deviceplugin_cli.migrate._compare import PLUGIN_DIRECTORY
from deviceplugin_cli.migrate._documents import mapping

Object = Mapping[str, Any]
_OBJECTS: Final[Mapping[str, Mapping[str, str]]] = {
    "nvidia.com": {"clusterpolicies": "ClusterPolicy", "nvidiadrivers": "NVIDIADriver"},
    "amd.com": {"deviceconfigs": "DeviceConfig"},
    "deviceplugin.intel.com": {
        f"{kind.lower()}s": kind
        for kind in (
            *("GpuDevicePlugin", "FpgaDevicePlugin", "DsaDevicePlugin", "IaaDevicePlugin"),
            *("QatDevicePlugin", "SgxDevicePlugin", "DlbDevicePlugin", "NpuDevicePlugin"),
        )
    },
    "fpga.intel.com": {"acceleratorfunctions": "AcceleratorFunction", "fpgaregions": "FpgaRegion"},
    "sriovnetwork.openshift.io": {
        "sriovnetworknodepolicies": "SriovNetworkNodePolicy",
        "sriovoperatorconfigs": "SriovOperatorConfig",
    },
    "mellanox.com": {"nicclusterpolicies": "NicClusterPolicy"},
    "akri.sh": {"configurations": "Configuration"},
    "kubevirt.io": {"kubevirts": "KubeVirt"},
}
"""What the operators of peers read: groups, names in addresses, and kinds."""
_LIVING: Final = "status.phase!=Succeeded,status.phase!=Failed"
_FEW: Final = 10
"""Nodes that are named. Of more, their number is given too."""


@dataclass
class Survey:
    """What a cluster has of device plugins."""

    documents: list[tuple[str, Object]] = field(default_factory=list)
    """Places, for messages, and objects."""
    seen: list[str] = field(default_factory=list)
    """Each device plugin and where it runs, and what could not be read: a line each."""


def read_cluster(
    api: ApiServer, reader: Reader, namespace: str, is_known: Callable[[Object], bool]
) -> Survey:
    """Return the device plugins of a cluster, with all that they name.

    Args:
        api: Where single objects are asked for.
        reader: Where lists are.
        namespace: Only this one, and what belongs to none; all if it is empty.
        is_known: Whether a plugin of ours knows a DaemonSet or an object of an operator.

    Raises:
        ApiServerError: DaemonSets cannot be listed.
    """
    return _Reading(api, reader, namespace).survey(is_known)


class _Reading:
    """Asks an API server."""

    def __init__(self, api: ApiServer, reader: Reader, namespace: str) -> None:
        self._api = api
        self._reader = reader
        self._namespace = namespace
        self._survey = Survey()

    def survey(self, is_known: Callable[[Object], bool]) -> Survey:
        owners: set[Any] = set()
        for group, names in _OBJECTS.items():
            for one in self._objects(group, names):
                self._add(one)
                if is_known(one):
                    owners.add(mapping(one, "metadata").get("uid"))
                    self._survey.seen.append(f"{_title(one)}: known")
        wanted: list[Object] = []
        for one in self._daemon_sets():
            known = is_known(one)
            if known or _serves_devices(one):
                above = _owner(one, owners)
                words = f"made by {above}" if above else "known" if known else _stranger(one)
                self._survey.seen.append(f"{_title(one)}: {words}; {self._nodes(one)}")
                wanted += [one] if known and not above else []
        for one in wanted:
            self._add(one)
        self._add_config_maps(wanted)
        return self._survey

    def _add(self, one: Object) -> None:
        self._survey.documents.append((f"cluster: {_title(one)}", one))

    def _daemon_sets(self) -> Iterator[Object]:
        inside = f"/namespaces/{self._namespace}" if self._namespace else ""
        path = f"/apis/apps/v1{inside}/daemonsets"
        try:
            found = self._reader.read(path, "DaemonSets", dict)
        except ForbiddenError as error:
            raise ForbiddenError(f"needs list daemonsets.apps: {error}") from error
        return (_named(one, "apps/v1", "DaemonSet") for one in found)

    def _objects(self, group: str, names: Mapping[str, str]) -> Iterator[Object]:
        """Yield the objects of a group in its preferred version; none if it is not installed."""
        try:
            about = self._api.get(f"/apis/{group}")
        except NotFoundError:
            return
        version = f"{group}/{mapping(about, 'preferredVersion').get('version')}"
        for plural, kind in names.items():
            try:
                found = self._reader.read(f"/apis/{version}/{plural}", f"{kind} objects", dict)
            except NotFoundError:
                continue
            except ForbiddenError as error:
                self._survey.seen.append(f"{kind} objects: needs list {plural}.{group}: {error}")
                continue
            for one in found:
                there = mapping(one, "metadata").get("namespace")
                if not self._namespace or there in {None, self._namespace}:
                    yield _named(one, version, kind)

    def _nodes(self, daemon_set: Object) -> str:
        """Return where the pods of a DaemonSet run, in words."""
        metadata = mapping(daemon_set, "metadata")
        labels = mapping(mapping(mapping(daemon_set, "spec"), "selector"), "matchLabels")
        query = {
            "labelSelector": ",".join(f"{key}={one}" for key, one in labels.items()),
            "fieldSelector": _LIVING,
        }
        try:
            path = f"/api/v1/namespaces/{metadata.get('namespace')}/pods"
            pods = self._reader.read(path, "pods", dict, query)
        except ApiServerError as error:
            needs = "needs list pods: " if isinstance(error, ForbiddenError) else ""
            return f"its nodes are not known: {needs}{error}"
        names = sorted(
            str(mapping(one, "spec").get("nodeName"))
            for one in pods
            if _owner(one, {metadata.get("uid")}) and mapping(one, "spec").get("nodeName")
        )
        return f"on {len(names)} nodes: {few(names, _FEW)}" if names else "on no node"

    def _add_config_maps(self, daemon_sets: Sequence[Object]) -> None:
        wanted = dict.fromkeys(
            (str(mapping(one, "metadata").get("namespace")), name)
            for one in daemon_sets
            for name in _config_maps(one)
        )
        for namespace, name in wanted:
            try:
                found = self._api.get(f"/api/v1/namespaces/{namespace}/configmaps/{name}")
            except NotFoundError:  # what needs it says so
                continue
            except ForbiddenError as error:
                line = f"ConfigMap {namespace}/{name}: needs get configmaps: {error}"
                self._survey.seen.append(line)
                continue
            self._add(_named(found, "v1", "ConfigMap"))


def _named(one: Object, version: str, kind: str) -> Object:
    """Return an object with what those in lists lack."""
    return {"apiVersion": version, "kind": kind, **one}


def _title(one: Object) -> str:
    found = mapping(one, "metadata")
    name = "/".join(str(found[key]) for key in ("namespace", "name") if found.get(key))
    return f"{one['kind']} {name}"


def _owner(one: Object, uids: set[Any]) -> str:
    """Return the kind and the name of an owner of an object; nothing if it has none of these."""
    owners = mapping(one, "metadata").get("ownerReferences") or []
    found = [one for one in owners if one.get("uid") in uids]
    return f"{found[0].get('kind')} {found[0].get('name')}" if found else ""


def _stranger(daemon_set: Object) -> str:
    labels = mapping(mapping(daemon_set, "metadata"), "labels")
    return "ours" if labels.get("app.kubernetes.io/part-of") == "device-plugins" else "not known"


def _serves_devices(daemon_set: Object) -> bool:
    """Return whether it mounts the directory of device plugins."""
    pod = mapping(mapping(mapping(daemon_set, "spec"), "template"), "spec")
    paths = [mapping(one, "hostPath").get("path") for one in pod.get("volumes") or []]
    mounts = [
        mount.get("mountPath")
        for one in pod.get("containers") or []
        for mount in one.get("volumeMounts") or []
    ]
    found = [str(one or "").rstrip("/") for one in (*paths, *mounts)]
    return any(one.endswith("/device-plugins") for one in found) or PLUGIN_DIRECTORY in found


def _config_maps(value: Any) -> Iterator[str]:
    """Yield the names of ConfigMaps that a DaemonSet names, wherever."""
    if isinstance(value, list):
        for one in value:
            yield from _config_maps(one)
    elif isinstance(value, Mapping):
        for key in ("configMap", "configMapRef", "configMapKeyRef"):
            if name := mapping(value, key).get("name"):
                yield str(name)
        for one in value.values():
            yield from _config_maps(one)
