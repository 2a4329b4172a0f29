"""A DRA driver that does what a kubelet expects: one slice, one device that is shared."""

import fcntl
import json
import os
import signal
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from deviceplugin._platform.waiting import Waiter
from deviceplugin.apiserver import ApiServer
from deviceplugin.errors import DevicePluginError
from deviceplugin.kit import files
from deviceplugin.proto.dra import HEALTH, V1, V1BETA1
from deviceplugin.proto.dra import dra_v1_pb2 as pb
from deviceplugin_testing.simulator import StubDriver

DEVICES = ("a", "b", "c", "d")
SHARED = "shared"
Part = tuple[str, str]
"""A device, and the id of a share of it."""
API = "/apis/resource.k8s.io/v1"


class RefusedError(Exception):
    """A claim is not prepared."""


class Good(StubDriver):
    """The driver; others derive from it and break one thing."""

    name = "good.example.com"
    services: Sequence[str] = (V1, V1BETA1, HEALTH)
    every = 0.1
    devices_offered: Sequence[str] = DEVICES

    def __init__(self) -> None:
        self.cdi = Path(os.environ["DP_CDI_DIR"])
        super().__init__(
            Path(os.environ["DP_REGISTRY_DIR"]),
            self.name,
            cdi_dir=self.cdi,
            services=self.services,
        )
        self.records = Path(os.environ["DP_DRIVER_DIR"]) / self.name
        self.records.mkdir(parents=True, exist_ok=True)
        self.api = ApiServer(os.environ["DP_API_SERVER"])
        self.node = os.environ["NODE_NAME"]
        self.pool = f"{self.node}/things"
        self.lock = threading.Lock()
        self.on_prepare = self.answer
        self.on_unprepare = self.release_claim
        self.waiter = Waiter()

    # Life

    def main(self) -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: self.waiter.end())
        self.begin()
        self.restore()
        self.report(self.health())
        self.start()
        while not self.waiter.is_over():
            self.work()
            self.waiter.pause(self.every)
        self.end()

    def begin(self) -> None:
        """Wait until no other instance runs."""
        turn = os.open(self.records.with_suffix(".lock"), os.O_CREAT | os.O_RDWR)
        fcntl.flock(turn, fcntl.LOCK_EX)  # until this process ends

    def restore(self) -> None:
        for path in self.records.glob("*.json"):
            self.write_edits(path.stem, json.loads(path.read_text()))

    def work(self) -> None:
        try:
            self.publish()
        except DevicePluginError:
            return

    def end(self) -> None:
        self.stop()

    def health(self) -> dict[tuple[str, str], str]:
        return {(self.pool, device): "Healthy" for device in (*self.devices_offered, SHARED)}

    # Slices

    def publish(self) -> None:
        if not self.own_slices():
            for one in self.slices():
                self.api.create(f"{API}/resourceslices", one)

    def own_slices(self) -> Sequence[Any]:
        selector = f"spec.nodeName={self.node},spec.driver={self.name}"
        return self.api.list(f"{API}/resourceslices", {"fieldSelector": selector}).items

    def slices(self) -> list[dict[str, Any]]:
        return [self.slice()]

    def slice(self) -> dict[str, Any]:
        node = self.api.get(f"/api/v1/nodes/{self.node}")["metadata"]
        owner = {"apiVersion": "v1", "kind": "Node", "name": self.node, "uid": node["uid"]}
        return {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceSlice",
            "metadata": {"generateName": "good-", "ownerReferences": [owner]},
            "spec": {
                "driver": self.name,
                "nodeName": self.node,
                "pool": {"name": self.pool, "generation": 1, "resourceSliceCount": 1},
                "devices": [*({"name": name} for name in self.devices_offered), self.shared()],
            },
        }

    def shared(self) -> dict[str, Any]:
        policy = {"default": "1", "validRange": {"min": "1", "step": "1"}}
        capacity = {"shares": {"value": "2", "requestPolicy": policy}}
        return {"name": SHARED, "allowMultipleAllocations": True, "capacity": capacity}

    # Claims

    def answer(self, claim: pb.Claim) -> pb.NodePrepareResourceResponse:
        try:
            with self.lock:
                return self.prepare_claim(claim)
        except (DevicePluginError, RefusedError) as error:
            return pb.NodePrepareResourceResponse(error=str(error))

    def prepare_claim(self, claim: pb.Claim) -> pb.NodePrepareResourceResponse:
        record = self.records / f"{claim.uid}.json"
        if record.exists():
            devices = [(device, share) for device, share in json.loads(record.read_text())]
        else:
            devices = self.allocated(claim)
            self.check(claim, [device for device, _ in devices])
            files.write(record, json.dumps(devices))
        self.write_edits(claim.uid, devices)
        return self.response(claim.uid, devices)

    def allocated(self, claim: pb.Claim) -> list[Part]:
        path = f"{API}/namespaces/{claim.namespace}/resourceclaims/{claim.name}"
        found = self.api.get(path)
        if found["metadata"]["uid"] != claim.uid:
            raise RefusedError("the claim has another uid")
        allocation = found.get("status", {}).get("allocation")
        if not allocation:
            raise RefusedError("the claim is not allocated")
        devices = allocation["devices"]
        self.check_config([one["opaque"] for one in devices.get("config", [])])
        mine = [one for one in devices["results"] if one["driver"] == self.name]
        return [(one["device"], one.get("shareID", "")) for one in mine]

    def check_config(self, opaque: Sequence[Any]) -> None:
        if any(one["driver"] == self.name for one in opaque):
            raise RefusedError("this driver takes no parameters")

    def check(self, claim: pb.Claim, devices: Sequence[str]) -> None:
        for device in devices:
            if device == SHARED:
                continue
            if device not in self.devices_offered:
                raise RefusedError(f"no such device: {device}")
            for path in self.records.glob("*.json"):
                held = [name for name, _ in json.loads(path.read_text())]
                if path.stem != claim.uid and device in held:
                    raise RefusedError(f"{device} is held by claim {path.stem}")

    def write_edits(self, uid: str, devices: Sequence[Part]) -> None:
        # Its name may begin with a digit since 0.5.0.
        names = ",".join(name for name, _ in devices)
        self.write_cdi(f"c-{uid}", {"env": [f"THINGS={names}"]}, version="0.3.0")

    def response(self, uid: str, devices: Sequence[Part]) -> pb.NodePrepareResourceResponse:
        made = [
            pb.Device(
                pool_name=self.pool,
                device_name=device,
                share_id=share or None,
                cdi_device_ids=[f"{self.name}/claim=c-{uid}"] if index == 0 else [],
            )
            for index, (device, share) in enumerate(devices)
        ]
        for one in made:
            self.spoil(one)
        return pb.NodePrepareResourceResponse(devices=made)

    def spoil(self, device: pb.Device) -> None:
        """Do nothing; others change what is answered."""

    def release_claim(self, claim: pb.Claim) -> pb.NodeUnprepareResourceResponse:
        with self.lock:
            (self.records / f"{claim.uid}.json").unlink(missing_ok=True)
            (self.cdi / f"{self.name}-c-{claim.uid}.json").unlink(missing_ok=True)
        return pb.NodeUnprepareResourceResponse()
