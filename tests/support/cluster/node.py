"""The node of the stand-in for a cluster: a simulated kubelet, and pods that are processes here."""

from collections.abc import Mapping
from pathlib import Path

from cluster.container import Container, Image
from cluster.kinds import CONFIG_MAP, NODE, NODE_LABELS, POD, Object
from cluster.pod import NAME, RunningPod, WaitingError
from cluster.store import Store, tell
from deviceplugin.apiserver import ApiServer
from deviceplugin_testing.simulator import ApiCluster, KubeletConfig, SimulatedKubelet
from deviceplugin_testing.simulator._control_plane.quantities import canonical
from deviceplugin_testing.simulator._control_plane.refusals import RefusedError


class ProcessNode:
    """``root`` stands for the node's root directory, with /tmp and all that pods mount of it.

    It should be short, because sockets are below it. ``images`` are those that the node has; there
    is no registry. ``environment`` has further variables of containers, as for pretended
    hardware.
    """

    def __init__(
        self, root: Path, store: Store, images: Mapping[str, Image], environment: Mapping[str, str]
    ) -> None:
        self.root, self._store, self._images = root, store, images
        self.environment = {**environment}
        self._cluster, cdi = ApiCluster(None), root / "var/run/cdi"
        config = KubeletConfig(cluster=self._cluster, node_name=NAME, cdi_dirs=(cdi,))
        self.kubelet = SimulatedKubelet(root / "var/lib/kubelet", config=config)
        self.bell = root / "restart-kubelet"
        """The kubelet is restarted when this file is there, which then is removed."""
        self._pods: dict[str, RunningPod] = {}
        for place in ("tmp", "var/lib/kubelet/plugins_registry"):
            (root / place).mkdir(parents=True)

    def start(self, api: str) -> None:
        """Start the kubelet, with the address of the API server."""
        self.environment["DP_API_SERVER"] = api
        self._cluster.api = ApiServer(api)
        self.kubelet.start()
        # Otherwise than its name, as with some clouds.
        labels = {**NODE_LABELS, "kubernetes.io/hostname": f"{NAME}.example.com"}
        self._store.create(
            NODE,
            {
                "apiVersion": "v1",
                "kind": "Node",
                "metadata": {"name": NAME, "labels": labels},
                "spec": {},
                "status": {
                    "conditions": [{"type": "Ready", "status": "True"}],
                    "images": [{"names": [name]} for name in self._images],
                },
            },
        )

    def stop(self) -> None:
        for pod in self._pods.values():
            pod.stop(0)
        self.kubelet.stop()

    def step(self) -> None:
        """Do what is to be done: tell the node's status, start pods, look at them, remove them."""
        if self.bell.exists():
            self.kubelet.restart()
            self.bell.unlink()
        self.kubelet.tick()
        status = self.kubelet.node
        usual = {"cpu": "4", "memory": "8Gi", "pods": "110"}
        amounts = {
            name: {**usual, **{resource: canonical(count) for resource, count in counts.items()}}
            for name, counts in (("capacity", status.capacity), ("allocatable", status.allocatable))
        }
        self._store.change(NODE, "", NAME, lambda found: found["status"].update(amounts))
        pods = [one for one in self._store.list(POD) if one["spec"].get("nodeName") == NAME]
        for gone in self._pods.keys() - {one["metadata"]["uid"] for one in pods}:
            self._pods.pop(gone).stop(0)
        for pod in pods:
            self._step(pod)

    def _step(self, pod: Object) -> None:
        metadata = pod["metadata"]
        uid, place = metadata["uid"], (metadata["namespace"], metadata["name"])
        running = self._pods.get(uid)
        if running is None:
            root = self.root / "var/lib/kubelet/pods" / uid[:8]
            running = self._pods[uid] = RunningPod(self, root, pod)
        if "deletionTimestamp" in metadata:
            running.stop(min(5, metadata["deletionGracePeriodSeconds"]))
            del self._pods[uid]
            self._store.remove(POD, *place)
            return
        status = running.step()
        try:
            self._store.change(POD, *place, lambda found: found["status"].update(status))
        except RefusedError:  # deleted meanwhile
            running.stop(0)
            del self._pods[uid]

    def container(self, pod: Object, name: str) -> Container:
        """Return a container of a running pod; ``LookupError`` if there is none."""
        return self._pods[pod["metadata"]["uid"]].containers[name]

    def path(self, place: str) -> Path:
        return self.root / place.strip("/")

    def image(self, container: Object) -> Image:
        """Return the image of a container, or raise ``WaitingError``."""
        name, policy = container["image"], container["imagePullPolicy"]
        if name in self._images and policy != "Always":
            return self._images[name]
        if policy == "Never":
            raise WaitingError(
                "ErrImageNeverPull",
                f'Container image "{name}" is not present with pull policy of Never',
            )
        raise WaitingError("ErrImagePull", f'failed to pull image "{name}": there is no registry')

    def volume(self, namespace: str, volume: Object, own: Path) -> Path:
        """Return the directory of a volume, or raise ``WaitingError``; ``own`` is the pod's."""
        if "hostPath" in volume:
            wanted = volume["hostPath"]
            path = self.path(wanted["path"])
            if wanted["type"] == "DirectoryOrCreate":
                path.mkdir(parents=True, exist_ok=True)
            if wanted["type"] and not path.is_dir():
                raise WaitingError(
                    "ContainerCreating",
                    f'MountVolume.SetUp failed for volume "{volume["name"]}" : hostPath type check '
                    f"failed: {wanted['path']} is not a directory",
                )
            return path
        own.mkdir(parents=True, exist_ok=True)
        if "configMap" in volume:
            name = volume["configMap"]["name"]
            if not self._store.exists(CONFIG_MAP, namespace, name):
                message = f'MountVolume.SetUp failed for volume "{volume["name"]}" : configmap '
                raise WaitingError("ContainerCreating", f'{message}"{name}" not found')
            for file, text in self._store.get(CONFIG_MAP, namespace, name)["data"].items():
                (own / file).write_text(text)
        return own

    def tell(self, pod: Object, reason: str, message: str) -> None:
        tell(self._store, pod, reason, message)
