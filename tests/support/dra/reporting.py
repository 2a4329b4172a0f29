"""What reports the health of devices in claims, without a driver."""

import threading
from collections.abc import Sequence
from typing import Final

from typing_extensions import override

from deviceplugin._app.dra_claims import Claims
from deviceplugin._attribution.ownership import Claim
from deviceplugin._dra.claim_status import ClaimStatus
from deviceplugin._dra.claims.record import Record, RecordedDevice
from deviceplugin._dra.serving.health import DeviceHealth, Status
from deviceplugin._platform.clock import Clock
from deviceplugin.apiserver import ApiServer

DRIVER: Final = "gopher.example.com"
POOL: Final = "n1/x"


class PassingClock(Clock):
    """Has whoever waits for the time wait no longer."""

    def __init__(self) -> None:
        self.time = 0.0

    @override
    def now(self) -> float:
        return self.time

    @override
    def wait(self, event: threading.Event, until: float) -> None:
        if not event.is_set():
            self.time = max(self.time, until)


class Reporting:
    """Reports the health of the device d0 in ``claims``, step by step."""

    def __init__(self, api: ApiServer, claims: Sequence[Claim]) -> None:
        self.clock = PassingClock()
        self.health: tuple[Status, str] = "healthy", ""
        self.records = {one.uid: self.record(one) for one in claims}
        self.writes: list[bool] = []
        self.status = ClaimStatus(
            DRIVER,
            records=lambda: self.records,
            health=lambda: [DeviceHealth(POOL, "d0", *self.health)],
            claims=Claims(api, lambda: None),
            count=self.writes.append,
            clock=self.clock,
        )

    def record(self, claim: Claim) -> Record:
        device = RecordedDevice("example.com/gopher", "0", "r", POOL, "d0")
        return Record(claim, "boot", "prepared", [device])

    def say(self, status: Status, message: str = "") -> None:
        self.health = status, message
        self.status.check()
