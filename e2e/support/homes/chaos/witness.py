"""The pod of the chaos that sees and may do everything on the node."""

import json
from typing import Any, Final

from homes.chaos.scripts import (
    BIND,
    FILL,
    FREEZE,
    JUMP,
    KILL,
    KUBELETS,
    READ,
    SEEN,
    SOCKETS,
    WITNESS,
)
from homes.cluster.deployed import Deployed

KUBELET = "/var/lib/kubelet/device-plugins"
POD_RESOURCES = "/var/lib/kubelet/pod-resources"
NAME = "witness"
DISKS: Final = {
    "sockets": KUBELET,
    "driver": "/var/lib/kubelet/plugins/gopher-device-plugin",
    "registry": "/var/lib/kubelet/plugins_registry",
    "cdi": "/var/run/cdi",
}
"""The directories that plugins write; the kubelet has its checkpoint beside the sockets."""


class Witness:
    """Runs scripts on the node, in a pod beside the plugin of ``here``.

    What it does to the disk and the clock ends by itself, and with its pod, whatever happens to
    the test.
    """

    def __init__(self, here: Deployed) -> None:
        self._here = here

    def start(self, pod: dict[str, Any], lifetime: float) -> None:
        """Turn ``pod`` into the witness, and run it for ``lifetime`` seconds."""
        pod["metadata"]["name"] = NAME
        pod["metadata"]["labels"] = {}  # it is no pod of the chaos
        pod["spec"] |= {
            "hostPID": True,
            "hostNetwork": True,  # by which it knows the node's programs
            "terminationGracePeriodSeconds": 10,
            "priorityClassName": "system-node-critical",  # not evicted
            "restartPolicy": "Always",  # after a reboot
        }
        (container,) = pod["spec"]["containers"]
        container["command"] = ["python3", "-c", WITNESS, f"{lifetime:g}", *DISKS.values()]
        container["securityContext"]["privileged"] = True
        for name, path in (*DISKS.items(), ("pod-resources", POD_RESOURCES)):
            container["volumeMounts"].append({"name": name, "mountPath": path})
            place = {"path": path, "type": "DirectoryOrCreate"}
            pod["spec"]["volumes"].append({"name": name, "hostPath": place})
        self._here.kubectl.apply(pod)
        self._here.wait_phase(NAME, "Running")

    def _run(self, script: str, *words: str, check: bool = True) -> str:
        """Return what a script prints."""
        command = ("python3", "-c", script, *words)
        return self._here.kubectl.execute(NAME, *command, check=check).strip()

    def kubelets(self) -> str:
        """Return the process ids of kubelets; empty also if they cannot be had."""
        return self._run(KUBELETS, check=False)

    def read(self, path: str) -> str:
        """Return the content of a file; empty if it does not exist."""
        return self._run(READ, path)

    def is_there(self) -> bool:
        """Return whether it can be asked."""
        return bool(self._run("print(1)", check=False))

    def seen(self, *plugins: str) -> dict[str, Any]:
        """Return what ``scripts.SEEN`` finds, also of plugins with these addresses.

        Nothing if the kubelet or one of them does not answer.
        """
        found: dict[str, Any] = json.loads(self._run(SEEN, KUBELET, *plugins, check=False) or "{}")
        return found

    def checkpoint(self) -> list[dict[str, Any]]:
        """Return the devices of containers, as the kubelet has saved them."""
        text = self.read(f"{KUBELET}/kubelet_internal_checkpoint")
        return [*(json.loads(text)["Data"]["PodDeviceEntries"] or ())] if text else []

    def kill(self, *uids: str) -> None:
        """Kill all processes of pods."""
        self._run(KILL, *uids)

    def freeze(self, name: str, seconds: float, running: float, *uids: str) -> str:
        """Have a program of the node hang, and kill pods meanwhile; return why it cannot be done.

        If it is to be running for some seconds of each 0.25, it is slow.
        """
        # What carries the answer may end with the API server, and the script goes on.
        return self._run(FREEZE, name, f"{seconds:g}", f"{running:g}", *uids, check=False)

    def delete_sockets(self, folder: str = KUBELET) -> None:
        """Delete the sockets of all plugins, or those in another folder."""
        self._run(SOCKETS, folder)

    def why_not_fill(self, folder: str) -> str:
        """Return why the disk with a directory is not filled; empty if it can be."""
        return self._run(FILL, folder, "0")

    def fill(self, folder: str, seconds: float) -> None:
        """Have no room on the disk with a directory for so long."""
        assert not (problem := self._run(FILL, folder, f"{seconds:g}")), problem

    def why_no_socket(self, folder: str) -> str:
        """Return why nothing can be created in a directory; empty if something can."""
        return self._run(BIND, folder)

    def jump(self, by: float, seconds: float) -> None:
        """Set the clock ``by`` seconds on, or back, for so long."""
        self._run(JUMP, f"{by:g}", f"{seconds:g}")
