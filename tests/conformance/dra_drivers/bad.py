"""Drivers with one fault each, called after it."""

import json
import os
import signal
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import grpc
from tests.conformance.dra_drivers.good import DEVICES, Good, Part, RefusedError
from tests.conformance.dra_drivers.others import Divides

from deviceplugin.errors import DevicePluginError
from deviceplugin.proto.dra import V1, V1BETA1
from deviceplugin.proto.dra import dra_v1_pb2 as pb

Response = pb.NodePrepareResourceResponse


class OffersNothing(Good):
    """Registers, and publishes no slice."""

    def publish(self) -> None:
        """Do nothing."""


class OldServiceFirst(Good):
    services = (V1BETA1, V1)


class ForgetsHealth(Good):
    def health(self) -> dict[tuple[str, str], str]:
        return dict(list(super().health().items())[:1])


class NeedsAClaim(Good):
    def prepare(self, request: Any, context: grpc.ServicerContext, version: str) -> Any:
        if not request.claims:
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, "no claims")
        return super().prepare(request, context, version)


class HalfAPool(Good):
    """Has one complete pool, and one that lacks a slice."""

    def publish(self) -> None:
        if not self.own_slices():
            complete, half = self.slice(), self.slice()
            half["spec"] |= {"pool": {"name": "half", "generation": 1, "resourceSliceCount": 2}}
            # The driver counts as up once it has a complete pool.
            for one in (half, complete):
                self.api.create("/apis/resource.k8s.io/v1/resourceslices", one)


class Overdraws(Divides):
    amount = 9


class CountsOnAnother(Divides):
    of = "pie"


class NoOwner(Good):
    def slice(self) -> dict[str, Any]:
        made = super().slice()
        del made["metadata"]["ownerReferences"]
        return made


class TriesCapitals(Good):
    """Tries a name that the API server refuses, once."""

    def publish(self) -> None:
        if not self.own_slices():
            bad = self.slice()
            bad["spec"]["devices"] = [{"name": "A"}]
            try:
                self.api.create("/apis/resource.k8s.io/v1/resourceslices", bad)
            except DevicePluginError:
                super().publish()


class Heartbeat(Good):
    """Writes its slices again and again."""

    def publish(self) -> None:
        for one in self.own_slices():
            path = f"/apis/resource.k8s.io/v1/resourceslices/{one['metadata']['name']}"
            stamp = {"metadata": {"annotations": {"count": str(os.urandom(4).hex())}}}
            self.api.merge(path, stamp)
        super().publish()


class PublishesOnce(Good):
    published = False

    def publish(self) -> None:
        if not self.published:
            super().publish()
            self.published = True


class AnotherPool(Good):
    def spoil(self, device: pb.Device) -> None:
        device.pool_name = "another"


class ChangingAnswers(Good):
    count = 0

    def spoil(self, device: pb.Device) -> None:
        self.count += 1
        device.cdi_device_ids.append(f"{self.name}/claim=more-{self.count}")


class TakesTheFirst(Good):
    """Prepares its first device where there is something wrong with a claim."""

    wrong = ""

    def allocated(self, claim: pb.Claim) -> list[Part]:
        try:
            return super().allocated(claim)
        except (DevicePluginError, RefusedError) as error:
            if self.wrong in f"{error} {getattr(error, 'status', '')}":
                return [(DEVICES[0], "")]
            raise


class Guesses(TakesTheFirst):
    wrong = "404"


class IgnoresUid(TakesTheFirst):
    wrong = "another uid"


class IgnoresAllocation(TakesTheFirst):
    wrong = "not allocated"


class PreparesAnything(Good):
    def check(self, claim: pb.Claim, devices: Sequence[str]) -> None:
        super().check(claim, [one for one in devices if one in self.devices_offered])


class SharesDevices(Good):
    def check(self, claim: pb.Claim, devices: Sequence[str]) -> None:
        if not set(devices) <= set(self.devices_offered):
            super().check(claim, devices)


class SharesWithoutIds(Good):
    def response(self, uid: str, devices: Sequence[Part]) -> Response:
        return super().response(uid, [(device, "") for device, _ in devices])


class AllOrNothing(Good):
    def prepare(self, request: Any, context: grpc.ServicerContext, version: str) -> Any:
        answer = super().prepare(request, context, version)
        if errors := [one.error for one in answer.claims.values() if one.error]:
            for claim in request.claims:
                self.release_claim(claim)
                answer.claims[claim.uid].CopyFrom(Response(error=errors[0]))
        return answer


class RefusesForeignConfig(Good):
    def check_config(self, opaque: Sequence[Any]) -> None:
        if opaque:
            raise RefusedError("unknown configuration")


class IgnoresParameters(Good):
    def check_config(self, opaque: Sequence[Any]) -> None:
        """Do nothing."""


class TakesForeignDevices(Good):
    def allocated(self, claim: pb.Claim) -> list[Part]:
        found = super().allocated(claim)
        path = f"/apis/resource.k8s.io/v1/namespaces/{claim.namespace}/resourceclaims/{claim.name}"
        results = self.api.get(path)["status"]["allocation"]["devices"]["results"]
        return found + [(one["device"], "") for one in results if one["driver"] != self.name]

    def check(self, claim: pb.Claim, devices: Sequence[str]) -> None:
        super().check(claim, [one for one in devices if one != "other"])


class RemembersNothingButErrors(Good):
    def release_claim(self, claim: pb.Claim) -> pb.NodeUnprepareResourceResponse:
        if not (self.records / f"{claim.uid}.json").exists():
            return pb.NodeUnprepareResourceResponse(error="unknown claim")
        return super().release_claim(claim)


class ReadsToRelease(Good):
    def release_claim(self, claim: pb.Claim) -> pb.NodeUnprepareResourceResponse:
        path = f"/apis/resource.k8s.io/v1/namespaces/{claim.namespace}/resourceclaims/{claim.name}"
        try:
            self.api.get(path)
        except DevicePluginError as error:
            return pb.NodeUnprepareResourceResponse(error=str(error))
        return super().release_claim(claim)


class AlwaysReads(Good):
    """Reads a claim that it has prepared already."""

    def prepare_claim(self, claim: pb.Claim) -> Response:
        self.allocated(claim)
        return super().prepare_claim(claim)


class WritesNoFile(Good):
    def write_edits(self, uid: str, devices: Sequence[Part]) -> None:
        """Do nothing."""


class NewestVersion(Good):
    def write_edits(self, uid: str, devices: Sequence[Part]) -> None:
        names = ",".join(name for name, _ in devices)
        self.write_cdi(f"c-{uid}", {"env": [f"THINGS={names}"]}, version="1.0.0")


class LeavesFiles(Good):
    def release_claim(self, claim: pb.Claim) -> pb.NodeUnprepareResourceResponse:
        (self.records / f"{claim.uid}.json").unlink(missing_ok=True)
        return pb.NodeUnprepareResourceResponse()


class OneNameForAll(Good):
    def write_edits(self, _uid: str, devices: Sequence[Part]) -> None:
        super().write_edits("device", devices)

    def response(self, _uid: str, devices: Sequence[Part]) -> Response:
        return super().response("device", devices)

    def release_claim(self, claim: pb.Claim) -> pb.NodeUnprepareResourceResponse:
        (self.cdi / f"{self.name}-c-device.json").unlink(missing_ok=True)
        return super().release_claim(claim)


class OneFirstName(Good):
    """Gives each device a name for all of them first."""

    def response(self, uid: str, devices: Sequence[Part]) -> Response:
        made = super().response(uid, devices)
        for device in made.devices:
            device.cdi_device_ids[:] = [f"{self.name}/claim=c-{uid}"]
        return made


class WritesGarbage(Good):
    """Leaves half a file beside the good one."""

    def write_edits(self, uid: str, devices: Sequence[Part]) -> None:
        super().write_edits(uid, devices)
        (self.cdi / "half.json").write_text("{")


class NamesByProcess(Good):
    def spoil(self, device: pb.Device) -> None:
        device.cdi_device_ids.append(f"{self.name}/claim=process-{os.getpid()}")


class DiesOfAMissingClaim(Good):
    def allocated(self, claim: pb.Claim) -> list[Part]:
        try:
            return super().allocated(claim)
        except DevicePluginError:
            os._exit(3)


class GivesWay(Good):
    """Is ended by the next instance, each of which has a socket of its own."""

    def begin(self) -> None:
        for other in self.socket.parent.glob("[0-9]*.sock"):
            with suppress(ProcessLookupError):
                os.kill(int(other.stem), signal.SIGKILL)
        self.socket = self.socket.with_name(f"{os.getpid()}.sock")


class StopsWithoutSlices(Good):
    """Ends once its slices have been deleted twice."""

    seen = 0

    def publish(self) -> None:
        if not self.own_slices():
            self.seen += 1
            if self.seen < 2:
                super().publish()


class ForgetsOnStart(Good):
    def restore(self) -> None:
        for path in self.records.glob("*.json"):
            path.unlink()


class AnswersFromRecord(Good):
    """Does not write files again for a claim that it has on record."""

    def restore(self) -> None:
        """Do nothing."""

    def prepare_claim(self, claim: pb.Claim) -> Response:
        record = self.records / f"{claim.uid}.json"
        if record.exists():
            found = json.loads(record.read_text())
            return self.response(claim.uid, [(device, share) for device, share in found])
        return super().prepare_claim(claim)


class LeavesItsSocket(Good):
    def end(self) -> None:
        self.kill()
