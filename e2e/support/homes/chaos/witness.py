"""The pod of the chaos that sees and may do everything on the node."""

import json
from collections import Counter
from typing import Any

from homes.chaos.scripts import (
    BIND,
    FILL,
    HOLDERS,
    JUMP,
    KILL,
    KUBELETS,
    OFFERED,
    READ,
    SOCKETS,
    WITNESS,
)
from homes.cluster.deployed import Deployed

KUBELET = "/var/lib/kubelet/device-plugins"
POD_RESOURCES = "/var/lib/kubelet/pod-resources"
NAME = "witness"


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
        pod["spec"] |= {"hostPID": True, "terminationGracePeriodSeconds": 10}
        (container,) = pod["spec"]["containers"]
        container["command"] = ["python3", "-c", WITNESS, KUBELET, f"{lifetime:g}"]
        container["securityContext"]["privileged"] = True
        for name, path in (("kubelet", KUBELET), ("pod-resources", POD_RESOURCES)):
            container["volumeMounts"].append({"name": name, "mountPath": path})
            place = {"path": path, "type": "Directory"}
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

    def checkpoint(self) -> list[dict[str, Any]]:
        """Return the devices of containers, as the kubelet has saved them."""
        text = self.read(f"{KUBELET}/kubelet_internal_checkpoint")
        return [*(json.loads(text)["Data"]["PodDeviceEntries"] or ())]

    def holders(self) -> list[list[str]]:
        """Return namespace, pod, resource and device of all that is held."""
        return [line.split() for line in self._run(HOLDERS).splitlines()]

    def offered(self) -> Counter[str]:
        """Return the number of healthy devices that the kubelet has of each resource."""
        lines = self._run(OFFERED, check=False).splitlines()
        return Counter(line.split()[0] for line in lines)

    def kill(self, uid: str) -> None:
        """Kill all processes of a pod."""
        self._run(KILL, uid)

    def delete_sockets(self) -> None:
        """Delete the sockets of all plugins."""
        self._run(SOCKETS, KUBELET)

    def why_not_fill(self) -> str:
        """Return why the disk with the sockets is not filled; empty if it can be."""
        return self._run(FILL, KUBELET, "0")

    def fill(self, seconds: float) -> None:
        """Have no room on the disk with the sockets for so long."""
        assert not (problem := self._run(FILL, KUBELET, f"{seconds:g}")), problem

    def why_no_socket(self) -> str:
        """Return why a plugin cannot create a socket; empty if it can."""
        return self._run(BIND, KUBELET)

    def jump(self, by: float, seconds: float) -> None:
        """Set the clock ``by`` seconds on, or back, for so long."""
        self._run(JUMP, f"{by:g}", f"{seconds:g}")
