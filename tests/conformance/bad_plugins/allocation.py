"""Plugins that allocate, prefer or prepare wrongly."""

import itertools
import time

import grpc
from tests.conformance.bad_plugins.good import Good

from deviceplugin.proto.v1beta1 import deviceplugin_pb2 as pb
from deviceplugin_testing.simulator import StubError


class RefusesAHealthyDevice(Good):
    def answer(self, ids: list[str]) -> pb.AllocateResponse:
        if ids == ["b"]:
            raise StubError("busy")
        return super().answer(ids)


class TwoResponses(Good):
    def answer(self, ids: list[str]) -> pb.AllocateResponse:
        answer = super().answer(ids)
        answer.container_responses.append(self.container(ids))
        return answer


class ChangingAnswers(Good):
    count = itertools.count()

    def spoil(self, answer: pb.ContainerAllocateResponse) -> None:
        answer.envs["COUNT"] = str(next(self.count))


class AnswersUnknown(Good):
    def answer(self, ids: list[str]) -> pb.AllocateResponse:
        known = {*self.ids, *self.sick}
        return super().answer(ids) if known.issuperset(ids) else pb.AllocateResponse()


class AllocatesUnhealthy(Good):
    def answer(self, ids: list[str]) -> pb.AllocateResponse:
        return super().answer([id_ for id_ in ids if id_ not in self.sick])


class SlowAllocate(Good):
    def answer(self, ids: list[str]) -> pb.AllocateResponse:
        if self.calls.count("Allocate") == 2:
            time.sleep(1.2)
        return super().answer(ids)


class WaitsForStreams(Good):
    def answer(self, ids: list[str]) -> pb.AllocateResponse:
        self._changed.until(lambda: self.streams <= 4, 1.3)
        return super().answer(ids)


class OddPermissions(Good):
    def spoil(self, answer: pb.ContainerAllocateResponse) -> None:
        answer.devices[0].permissions = "rx"


class RelativeMount(Good):
    def spoil(self, answer: pb.ContainerAllocateResponse) -> None:
        answer.mounts[0].host_path = "usr/share"


class OddVariable(Good):
    def spoil(self, answer: pb.ContainerAllocateResponse) -> None:
        answer.envs["A=B"] = "1"


class BareCdiName(Good):
    def spoil(self, answer: pb.ContainerAllocateResponse) -> None:
        answer.cdi_devices[0].name = "gpu0"


class PrefersTooFew(Good):
    def choose(self, available: list[str], required: list[str], size: int) -> list[str]:
        return super().choose(available, required, max(1, size - 1))


class IgnoresMustInclude(Good):
    def choose(self, available: list[str], _required: list[str], size: int) -> list[str]:
        return super().choose(available, [], size)


class PrefersWhatIsTaken(Good):
    def choose(self, _available: list[str], required: list[str], size: int) -> list[str]:
        return super().choose([*self.ids], required, size)


class FailsToPrefer(Good):
    def choose(self, available: list[str], required: list[str], size: int) -> list[str]:
        if size > len(available):
            raise StubError("not that many")
        return super().choose(available, required, size)


class SlowPreStart(Good):
    def PreStartContainer(  # noqa: N802
        self, request: pb.PreStartContainerRequest, context: grpc.ServicerContext
    ) -> pb.PreStartContainerResponse:
        time.sleep(0.8)
        return super().PreStartContainer(request, context)


class PreStartsOnce(Good):
    prepared = True

    def answer(self, ids: list[str]) -> pb.AllocateResponse:
        self.prepared = False
        return super().answer(ids)

    def PreStartContainer(  # noqa: N802
        self, request: pb.PreStartContainerRequest, context: grpc.ServicerContext
    ) -> pb.PreStartContainerResponse:
        if self.prepared:
            context.abort(grpc.StatusCode.FAILED_PRECONDITION, "prepared already")
        self.prepared = True
        return super().PreStartContainer(request, context)


class DropsWhatItAllocates(Good):
    def answer(self, ids: list[str]) -> pb.AllocateResponse:
        self.update([each for each in self.devices() if each.ID not in ids])
        time.sleep(0.2)
        return super().answer(ids)
