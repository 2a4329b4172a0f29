"""Plugins on a simulated node of a simulated cluster, whose pods are scheduled and run."""

import ssl
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

from deviceplugin._app.host import Host
from deviceplugin._config.settings import Settings
from deviceplugin.apiserver import ApiServer
from deviceplugin.apiserver._credentials import Credentials
from deviceplugin.plugin import Plugin
from deviceplugin_testing.fixture._node import PLUGIN_POD
from deviceplugin_testing.simulator import (
    KubeletConfig,
    RunOptions,
    SimulatedCluster,
    SimulatedNode,
)
from patience import eventually

NODE: Final = "n1"
DRIVER: Final = "dra.example.com"
_QUICK: Final = timedelta(milliseconds=50)
_STOP_TIMEOUT: Final = 10.0


class ServedNode:
    """The cluster, its node and the plugins on it."""

    def __init__(self, cluster: SimulatedCluster, node: SimulatedNode, host: Host) -> None:
        self.cluster, self.node, self.host = cluster, node, host
        self.kubelet = node.kubelet
        self._pods = 0

    def offered(self) -> dict[tuple[str, str], tuple[str, str]]:
        """Return resource and id of the devices in slices without a taint, by pool and name."""
        return {
            (one["spec"]["pool"]["name"], device["name"]): (
                device["attributes"]["resource"]["string"],
                device["attributes"]["id"]["string"],
            )
            for one in self.cluster.list("ResourceSlice")
            for device in one["spec"].get("devices", ())
            if not device.get("taints")
        }

    def await_offer(self) -> None:
        """Wait until a device is offered through DRA."""
        eventually(
            self.offered,
            lambda: f"devices in slices; {self.host.troubles()}; {self.node.problem}",
        )

    def held(self, name: str) -> set[str]:
        """Return the ids of the devices that a pod has through a claim for its limits."""
        return {attributes["id"]["string"] for _, _, attributes in self.attributes(name)}

    def attributes(self, name: str) -> list[tuple[str, str, Any]]:
        """Return pool, name and attributes in slices of these devices."""
        claim = self.status(name)["extendedResourceClaimStatus"]["resourceClaimName"]
        found = self.cluster.get("ResourceClaim", claim)
        assert found is not None
        results = found["status"]["allocation"]["devices"]["results"]
        described = {
            (one["spec"]["pool"]["name"], device["name"]): device["attributes"]
            for one in self.cluster.list("ResourceSlice")
            for device in one["spec"].get("devices", ())
        }
        places = {(one["pool"], one["device"]) for one in results}
        return sorted((*place, described[place]) for place in places)

    def offer(self, *resources: str) -> None:
        """Create a class for each of the resources, by which limits of that name are satisfied."""
        for resource in resources:
            domain = f'device.attributes["{DRIVER}"].resource == "{resource}"'
            selector = {"cel": {"expression": f'device.driver == "{DRIVER}" && {domain}'}}
            spec = {"selectors": [selector], "extendedResourceName": resource}
            name = resource.lower().replace("/", "-").replace("_", "-")
            self.cluster.create({"kind": "DeviceClass", "metadata": {"name": name}, "spec": spec})

    def pod(self, resource: str, count: int = 1) -> str:
        """Create a pod with a container that wants so many devices, and return its name."""
        return str(self._pod({"limits": {resource: str(count)}})["name"])

    def claiming(self, claim: Mapping[str, str]) -> str:
        """Create a pod with ``claim``, as ``resourceClaims`` have it, and return its name."""
        resources = {"claims": [{"name": claim["name"]}]}
        return str(self._pod(resources, resourceClaims=[claim])["name"])

    def _pod(self, resources: Any, **spec: Any) -> Any:
        """Create a pod whose container has these resources, and return its metadata."""
        self._pods += 1
        container = {"name": "main", "image": "none", "resources": resources}
        return self.cluster.create(
            {
                "kind": "Pod",
                "metadata": {"name": f"pod-{self._pods}"},
                "spec": {"containers": [container], **spec},
            }
        )["metadata"]

    def claim(self, pool: str, device: str) -> str:
        """Create a pod with a claim to which a device is allocated, and return its name."""
        name = f"claim-{self._pods}"
        requests = [{"name": "r", "exactly": {"deviceClassName": "any"}}]
        spec = {"devices": {"requests": requests}}
        self.cluster.create({"kind": "ResourceClaim", "metadata": {"name": name}, "spec": spec})
        claims = [{"name": "c", "resourceClaimName": name}]
        pod = self._pod({"claims": [{"name": "c"}]}, resourceClaims=claims)
        result = {"request": "r", "driver": DRIVER, "pool": pool, "device": device}
        user = {"resource": "pods", "name": pod["name"], "uid": pod["uid"]}
        status = {"allocation": {"devices": {"results": [result]}}, "reservedFor": [user]}
        self.cluster.change("ResourceClaim", name, lambda draft: draft.update(status=status))
        self.cluster.change("Pod", pod["name"], lambda draft: draft["spec"].update(nodeName=NODE))
        return str(pod["name"])

    def status(self, name: str) -> dict[str, Any]:
        """Return the status of a pod; an empty one if it is gone."""
        found = self.cluster.get("Pod", name)
        return dict(found["status"]) if found else {}

    def got(self, name: str) -> RunOptions:
        """Return what the pod's container got, once it runs."""
        eventually(
            lambda: self.status(name).get("phase") == "Running",
            lambda: f"{name} to run; {self.status(name)}; {self.host.troubles()}",
        )
        return self.kubelet.pod(self.node.pod(name)).started["main"] or RunOptions.merge([])

    def end(self, name: str) -> None:
        """Delete the pod, and wait until it is gone."""
        self.cluster.delete("Pod", name)
        eventually(lambda: not self.status(name), f"{name} to be gone")


@contextmanager
def served(
    root: Path,
    *plugins: Plugin,
    config: KubeletConfig | None = None,
    tls: ssl.SSLContext | None = None,
    account: Credentials | None = None,
    **changes: Any,
) -> Iterator[ServedNode]:
    """Run ``plugins`` on a node whose kubelet has its directory at ``root``.

    ``changes`` override settings; by default the plugins are served by the device-plugin protocol.
    With ``tls``, the API server has that certificate, and the kubelet uses ``account``.
    """
    quick = replace(
        config or KubeletConfig(), watch_interval=0.05, sync_interval=0.05, sync_frequency=0.2
    )
    with SimulatedCluster(tls=tls) as cluster:
        cluster.add_node(NODE)
        api = ApiServer(cluster.url, account)
        with SimulatedNode(
            root, api, NODE, interval=0.05, status_interval=0.2, config=quick
        ) as node:
            kubelet = node.kubelet
            kubelet.wait(lambda: not kubelet.dra.wipes, what="the first deletion of slices")
            kubelet.run(PLUGIN_POD)
            for directory in (kubelet.cdi_dirs[0], root / "plugins"):
                directory.mkdir()
            settings = Settings(
                plugin_dir=kubelet.plugin_dir,
                registry_dir=kubelet.registry_dir,
                pod_resources_socket=kubelet.pod_resources_socket,
                http_address="off",
                discovery_interval=_QUICK,
                poll_interval=_QUICK,
                pod_resources_interval=timedelta(milliseconds=200),
                driver_name=DRIVER,
                node_name=NODE,
                cdi_dir=kubelet.cdi_dirs[0],
                driver_dir=root / "plugins",
                api_server=cluster.url,
            )
            with running(Host(plugins, replace(settings, **changes))) as host:
                yield ServedNode(cluster, node, host)


@contextmanager
def running(host: Host) -> Iterator[Host]:
    """Run ``host`` in a thread; an error that ends it early is raised at the end."""
    errors: list[Exception] = []

    def run() -> None:
        try:
            host.run()
        except Exception as error:
            errors.append(error)

    thread = threading.Thread(target=run, name="host", daemon=True)
    thread.start()
    try:
        yield host
    finally:
        host.stop()
        thread.join(_STOP_TIMEOUT)
    if errors:
        raise errors[0]
