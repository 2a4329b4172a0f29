"""A plugin on the cluster's node that prefers what a test says, to see what the kubelet does."""

import json
from typing import Any, Final

from homes.chaos.witness import KUBELET
from homes.cluster.deployed import Deployed

RESOURCE: Final = "example.com/odd"
SILENT: Final = "example.com/silent"
"""Of the same plugin, which does not say that it has preferences for this one."""
IDS: Final = frozenset({"a", "b", "c", "d"})
"""The devices of the first. The other one has as many."""
PREFERENCES: Final[list[tuple[list[list[str]], int, set[str], set[str]]]] = [
    ([["c", "d"]], 2, {"c", "d"}, {"c", "d"}),
    ([["d"]], 2, {"d"}, {*IDS}),  # too few
    ([["b", "c", "d"]], 2, set(), {"b", "c", "d"}),  # too many
    ([["x", "d", "d"]], 2, {"d"}, {*IDS}),  # unknown, and twice
    ([["a", "b"], ["c", "d"]], 2, {"a", "b"}, {"a", "b"}),  # of two containers
    ([[]], 2, set(), {*IDS}),
    ([], 2, set(), {*IDS}),
    ([[*IDS]], 4, {*IDS}, {*IDS}),  # no choice
]
"""Answers, with the number that is needed, and which devices a pod surely and possibly gets."""
NAME: Final = "odd-plugin"
ANSWER: Final = "/dev/shm/answer"
SCRIPT: Final = f"""
import json, pathlib, signal, sys, threading
from concurrent.futures import ThreadPoolExecutor
import grpc
from deviceplugin._platform import rpc
from deviceplugin.proto.v1beta1 import VERSION
from deviceplugin.proto.v1beta1 import deviceplugin_pb2 as pb
folder, over = pathlib.Path("{KUBELET}"), threading.Event()
pathlib.Path("{ANSWER}").parent.mkdir(parents=True, exist_ok=True)
signal.signal(signal.SIGTERM, lambda *_: over.set())
class Odd:
    def __init__(self, resource, prefers): self.resource, self.prefers = resource, prefers
    def GetDevicePluginOptions(self, request, context):
        return pb.DevicePluginOptions(get_preferred_allocation_available=self.prefers)
    def ListAndWatch(self, request, context):
        ids = [one if self.prefers else f"silent-{{one}}" for one in {sorted(IDS)}]
        yield pb.ListAndWatchResponse(devices=[pb.Device(ID=one, health="Healthy") for one in ids])
        over.wait()
    def Allocate(self, request, context):
        return pb.AllocateResponse(container_responses=[pb.ContainerAllocateResponse()])
    def GetPreferredAllocation(self, request, context):
        (asked,) = request.container_requests
        print(json.dumps([sorted(asked.available_deviceIDs), sorted(asked.must_include_deviceIDs),
            asked.allocation_size]), flush=True)
        answer = json.loads(pathlib.Path("{ANSWER}").read_text())
        if isinstance(answer, str): context.abort(grpc.StatusCode[answer], "oops")
        return pb.PreferredAllocationResponse(container_responses=[
            pb.ContainerPreferredAllocationResponse(deviceIDs=ids) for ids in answer])
services = pb.DESCRIPTOR.services_by_name
paths = []
for resource, prefers in (("{RESOURCE}", True), ("{SILENT}", False)):
    path = folder / f"e2e-{{prefers}}.sock"
    server = grpc.server(ThreadPoolExecutor(8), handlers=[
        rpc.service(services["DevicePlugin"], Odd(resource, prefers))])
    server.add_insecure_port(f"unix:{{path}}")
    server.start()
    paths.append((server, path))
    with rpc.connect(folder / "kubelet.sock") as channel:
        rpc.calls(channel, services["Registration"])["Register"](pb.RegisterRequest(
            version=VERSION, endpoint=path.name, resource_name=resource), timeout=15)
over.wait()
for server, path in paths:
    server.stop(0.2).wait()
    path.unlink(missing_ok=True)
"""


class OddPlugin:
    """Runs beside the plugin of ``here``, in its image, until its pod is deleted."""

    def __init__(self, here: Deployed, pod: dict[str, Any]) -> None:
        self._here = here
        pod["metadata"]["name"] = NAME
        pod["spec"]["terminationGracePeriodSeconds"] = 5
        (container,) = pod["spec"]["containers"]
        container["image"] = here.image()
        container["command"] = ["python3", "-c", SCRIPT]
        container["securityContext"] = {"privileged": True, "runAsUser": 0}
        container["volumeMounts"] = [{"name": "kubelet", "mountPath": KUBELET}]
        place = {"path": KUBELET, "type": "Directory"}
        pod["spec"]["volumes"] = [{"name": "kubelet", "hostPath": place}]
        here.kubectl.apply(pod)
        here.wait_phase(NAME, "Running")

    def prefer(self, answer: list[list[str]] | str) -> None:
        """Answer so from now on: ids for each container, or the name of a gRPC status."""
        write = f"import pathlib, sys; pathlib.Path({ANSWER!r}).write_text(sys.argv[1])"
        self._here.kubectl.execute(NAME, "python3", "-c", write, json.dumps(answer))

    def asked(self) -> list[tuple[set[str], set[str], int]]:
        """Return what the kubelet has asked: available, must be included, size."""
        lines = self._here.kubectl.own("logs", NAME).splitlines()
        calls = map(json.loads, lines)
        return [(set(available), set(must), size) for available, must, size in calls]
