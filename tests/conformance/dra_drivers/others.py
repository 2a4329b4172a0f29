"""Drivers that do one thing differently from the good one, and as well."""

import json
import time
from collections.abc import Sequence
from typing import Any

import grpc
import yaml
from tests.conformance.dra_drivers.good import SHARED, Good, Part, RefusedError

from deviceplugin.proto.dra import dra_v1_pb2 as pb


class OneDevice(Good):
    """Has one device, and one socket, which each process takes."""

    devices_offered = ("a",)

    def begin(self) -> None:
        """Do nothing."""

    def slice(self) -> dict[str, Any]:
        made = super().slice()
        made["spec"]["devices"] = [{"name": "a"}]
        return made


class Divides(Good):
    """Has devices that consume counters."""

    of = "cake"
    amount = 2

    def slices(self) -> list[dict[str, Any]]:
        devices, counters = self.slice(), self.slice()
        for one in devices["spec"]["devices"][:-1]:
            wanted = {"quarters": {"value": str(self.amount)}}
            one["consumesCounters"] = [{"counterSet": self.of, "counters": wanted}]
        cake = {"name": "cake", "counters": {"quarters": {"value": "4"}}}
        counters["spec"] |= {"sharedCounters": [cake]}
        del counters["spec"]["devices"]
        for one in (devices, counters):
            one["spec"]["pool"]["resourceSliceCount"] = 2
        return [devices, counters]

    def check(self, claim: pb.Claim, devices: Sequence[str]) -> None:
        super().check(claim, devices)
        held = [one for path in self.records.glob("*.json") for one in json.loads(path.read_text())]
        taken = [name for name, _ in held if name != SHARED] + [*{*devices} - {SHARED}]
        if len(set(taken)) * self.amount > 4:
            raise RefusedError("the cake is eaten")


class FailsWholeCalls(Good):
    """Answers a call for one claim that it refuses by an error of the call."""

    def prepare(self, request: Any, context: grpc.ServicerContext, version: str) -> Any:
        answer = super().prepare(request, context, version)
        errors = [one.error for one in answer.claims.values() if one.error]
        if errors and len(request.claims) == 1:
            context.abort(grpc.StatusCode.UNKNOWN, errors[0])
        return answer


class WritesYaml(Good):
    """Writes CDI files as most drivers in Go do."""

    def write_edits(self, uid: str, devices: Sequence[Part]) -> None:
        super().write_edits(uid, devices)
        for path in self.cdi.glob("*.json"):
            path.with_suffix(".yaml").write_text(yaml.safe_dump(json.loads(path.read_text())))
            path.unlink()

    def release_claim(self, claim: pb.Claim) -> pb.NodeUnprepareResourceResponse:
        (self.cdi / f"{self.name}-c-{claim.uid}.yaml").unlink(missing_ok=True)
        return super().release_claim(claim)


class OneNameForEachDevice(Good):
    """Has a CDI file for each device, which stays when claims are released."""

    def write_edits(self, _uid: str, devices: Sequence[Part]) -> None:
        for name, _ in devices:
            self.write_cdi(name, {"env": [f"THINGS={name}"]}, version="0.3.0")

    def spoil(self, device: pb.Device) -> None:
        device.cdi_device_ids[:] = [f"{self.name}/claim={device.device_name}"]


class WaitsToPublish(Good):
    """Publishes slices that somebody has deleted only after a while, as the library in Go does."""

    delay = 1.2
    seen_at: float | None = None

    def publish(self) -> None:
        now = time.monotonic()
        if self.own_slices():
            self.seen_at = now
        elif self.seen_at is None or now - self.seen_at > self.delay:
            super().publish()
            self.seen_at = now
