"""What we expect of every device plugin that is deployed."""

import subprocess
import sys
from collections.abc import Iterator, Mapping
from json import loads
from pathlib import Path, PurePosixPath
from typing import Any

Manifest = Mapping[str, Any]

_POD: Mapping[str, object] = {
    "automountServiceAccountToken": False,
    "enableServiceLinks": False,
    "priorityClassName": "system-node-critical",
    "securityContext.seccompProfile": {"type": "RuntimeDefault"},
    "securityContext.seLinuxOptions.type": "container_device_plugin_t",
    "hostNetwork": None,
    "hostPID": None,
    "hostIPC": None,
}
_CONTAINER: Mapping[str, object] = {
    "securityContext.privileged": False,
    "securityContext.allowPrivilegeEscalation": False,
    "securityContext.readOnlyRootFilesystem": True,
    "securityContext.capabilities": {"drop": ["ALL"]},
    "startupProbe.httpGet": {"path": "/healthz", "port": "http"},
    "readinessProbe.httpGet": {"path": "/readyz", "port": "http"},
    "livenessProbe.httpGet": {"path": "/healthz", "port": "http"},
}
_NEEDED = ("resources.requests.cpu", "resources.requests.memory", "resources.limits.memory")
_ROLLING: Mapping[str, object] = {"updateStrategy.rollingUpdate.maxSurge": 0}
_TOO_WIDE = {"/", "/dev", "/etc", "/proc", "/root", "/run", "/sys", "/usr", "/var", "/var/lib"}
_TYPES = {"Directory", "DirectoryOrCreate", "CharDevice", "BlockDevice", "File", "Socket"}


def problems(manifests: list[Manifest], command: str) -> list[str]:
    """Return what is wrong with ``manifests``, which run ``command``."""
    by_kind = {manifest["kind"]: manifest for manifest in manifests}
    missing = {"Namespace", "ServiceAccount", "DaemonSet"} - set(by_kind)
    if missing:
        return [f"no {kind}" for kind in sorted(missing)]
    spec = by_kind["DaemonSet"]["spec"]
    pod = spec["template"]["spec"]
    (container,) = pod["containers"]
    return [
        *_of_namespace(by_kind),
        *_differ("DaemonSet", spec, _ROLLING),
        *_differ("pod", pod, _POD),
        *_differ("container", container, _CONTAINER),
        *(f"container: no {path}" for path in _NEEDED if _get(container, path) is None),
        *_of_volumes(pod, container),
        *_of_settings(container, command),
    ]


def _of_namespace(by_kind: Mapping[str, Manifest]) -> Iterator[str]:
    namespace = by_kind["Namespace"]["metadata"]
    if "pod-security.kubernetes.io/enforce" not in namespace.get("labels", {}):
        yield "namespace: no pod-security label"
    for kind, manifest in by_kind.items():
        if kind != "Namespace" and manifest["metadata"].get("namespace") != namespace["name"]:
            yield f"{kind}: not in namespace {namespace['name']}"
    account = by_kind["ServiceAccount"]
    if account.get("automountServiceAccountToken") is not False:
        yield "service account: its token is mounted"
    pod = by_kind["DaemonSet"]["spec"]["template"]["spec"]
    if pod["serviceAccountName"] != account["metadata"]["name"]:
        yield "pod: not the service account that is made for it"


def _of_volumes(pod: Manifest, container: Manifest) -> Iterator[str]:
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    mounted = {mount["name"]: mount for mount in container["volumeMounts"]}
    if volumes.keys() != mounted.keys():
        yield f"volumes and mounts differ: {sorted(volumes.keys() ^ mounted.keys())}"
    for name, volume in volumes.items():
        if "configMap" in volume:
            continue
        host = volume["hostPath"]
        if host.get("type") not in _TYPES:
            yield f"volume {name}: no type"
        if host["path"].rstrip("/") in {path.rstrip("/") for path in _TOO_WIDE}:
            yield f"volume {name}: {host['path']} is too wide"
        if name != "device-plugins" and not mounted.get(name, {}).get("readOnly"):
            yield f"mount {name}: can be written to"


def _of_settings(container: Manifest, command: str) -> Iterator[str]:
    """Ask the plugin itself what it makes of the manifest's flags and environment."""
    # What the cluster fills in (valueFrom) is some text here.
    environment = {one["name"]: one.get("value", "some-text") for one in container.get("env", [])}
    program = str(Path(sys.executable).with_name(command))
    words = [program, *container.get("args", []), "--print-config"]
    done = subprocess.run(
        words, env=environment, capture_output=True, text=True, check=False, timeout=15
    )
    if done.returncode != 0:
        yield f"{command} says: {done.stderr.strip().splitlines()[-1].removeprefix(f'{command}: ')}"
        return
    settings: dict[str, Any] = loads(done.stdout)
    variables = {"DP_" + key.upper().replace("-", "_") for key in settings}
    yield from (f"{name} is no setting" for name in environment if name not in variables)
    yield from _of_paths(container, settings)
    host, _, port = settings["http-address"].rpartition(":")
    ports = {entry["name"]: entry["containerPort"] for entry in container.get("ports", [])}
    if ports.get("http") != int(port) or host.startswith(("127.", "localhost", "[::1]")):
        yield f"http-address {settings['http-address']} cannot be probed on port {ports}"


def _of_paths(container: Manifest, settings: Mapping[str, Any]) -> Iterator[str]:
    mounts = [PurePosixPath(mount["mountPath"]) for mount in container["volumeMounts"]]
    paths = {k: v for k, v in settings.items() if isinstance(v, str) and v.startswith("/")}
    # Only one of the two ways to register is used.
    del paths["plugin-dir" if settings["registration"] == "watcher" else "registry-dir"]
    for key, value in paths.items():
        path = PurePosixPath(value)
        if not any(path.is_relative_to(mount) for mount in mounts):
            yield f"{key}: {value} is not mounted"


def _differ(what: str, manifest: Manifest, expected: Mapping[str, object]) -> Iterator[str]:
    for path, value in expected.items():
        found = _get(manifest, path)
        if found != value:
            yield f"{what}: {path} is {found}, not {value}"


def _get(manifest: Manifest, path: str) -> object:
    place: Any = manifest
    for name in path.split("."):
        place = place.get(name) if isinstance(place, Mapping) else None
    return place
