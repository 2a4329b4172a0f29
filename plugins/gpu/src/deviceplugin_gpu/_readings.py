"""What NVML measures of a GPU."""

from collections.abc import Sequence
from typing import Any, Final

from typing_extensions import override

from deviceplugin_gpu._gpu_metrics import Reader, Reading
from deviceplugin_gpu._nvml import Handle, Session, ask, call

_CORE_SENSOR: Final = 0
_CORRECTED, _UNCORRECTED = 0, 1
_SINCE_LOADED: Final = 0
_NO_ROWS: Final = (None, None, None, None)


class NvmlReader(Reader):
    """Reads GPUs through ``session`` while it is open."""

    def __init__(self, session: Session) -> None:
        self._session = session

    @override
    def read(self, uuid: str) -> Reading:
        with self._session.use():
            gpu = call("nvmlDeviceGetHandleByUUID", uuid)
            rates = ask(None, "nvmlDeviceGetUtilizationRates", gpu)
            memory = ask(None, "nvmlDeviceGetMemoryInfo", gpu)
            rows = _rows(gpu)
            return Reading(
                utilization=None if rates is None else rates.gpu / 100,
                memory_used=None if memory is None else int(memory.used),
                memory_total=None if memory is None else int(memory.total),
                temperature=ask(None, "nvmlDeviceGetTemperature", gpu, _CORE_SENSOR),
                power=_thousandth(ask(None, "nvmlDeviceGetPowerUsage", gpu)),
                energy=_thousandth(ask(None, "nvmlDeviceGetTotalEnergyConsumption", gpu)),
                ecc_corrected=_errors(gpu, _CORRECTED),
                ecc_uncorrected=_errors(gpu, _UNCORRECTED),
                throttling=ask(None, "nvmlDeviceGetCurrentClocksThrottleReasons", gpu),
                pcie_replays=ask(None, "nvmlDeviceGetPcieReplayCounter", gpu),
                remapped_corrected=rows[0],
                remapped_uncorrected=rows[1],
                remapping_pending=None if rows[2] is None else bool(rows[2]),
                remapping_failed=None if rows[3] is None else bool(rows[3]),
            )


def _errors(gpu: Handle, kind: int) -> int | None:
    found: int | None = ask(None, "nvmlDeviceGetTotalEccErrors", gpu, kind, _SINCE_LOADED)
    return found


def _rows(gpu: Handle) -> Sequence[Any]:
    return tuple(ask(_NO_ROWS, "nvmlDeviceGetRemappedRows", gpu))


def _thousandth(value: int | None) -> float | None:
    return None if value is None else value / 1000
