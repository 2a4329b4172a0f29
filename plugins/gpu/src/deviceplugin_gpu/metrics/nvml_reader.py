"""Reading a GPU's measurements for metrics."""

from collections.abc import Callable
from typing import Any, Final, TypeVar

from deviceplugin_gpu.metrics.collector import Reading
from deviceplugin_gpu.nvml.api import GPU_IS_LOST, NvmlError, Session, call

_T = TypeVar("_T")

_GPU_SENSOR: Final = 0
_CORRECTED, _UNCORRECTED, _VOLATILE = 0, 1, 0
_THOUSAND: Final = 1000


class NvmlReader:
    """Reads GPUs through ``session``. A value that a GPU does not report is None."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def read(self, uuid: str) -> Reading:
        """Return the present readings of the GPU.

        Raises:
            NvmlError: It is lost, or NVML is unavailable.
        """
        with self._session.use():
            gpu = call("nvmlDeviceGetHandleByUUID", uuid)
            memory = _ask("nvmlDeviceGetMemoryInfo", gpu)
            rows = _ask("nvmlDeviceGetRemappedRows", gpu) or (None, None, None, None)
            return Reading(
                utilization=_of(
                    _ask("nvmlDeviceGetUtilizationRates", gpu), lambda rates: rates.gpu / 100
                ),
                memory_used=_of(memory, lambda info: int(info.used)),
                memory_total=_of(memory, lambda info: int(info.total)),
                temperature=_ask("nvmlDeviceGetTemperature", gpu, _GPU_SENSOR),
                power=_of(_ask("nvmlDeviceGetPowerUsage", gpu), _thousandth),
                energy=_of(_ask("nvmlDeviceGetTotalEnergyConsumption", gpu), _thousandth),
                ecc_corrected=_ask("nvmlDeviceGetTotalEccErrors", gpu, _CORRECTED, _VOLATILE),
                ecc_uncorrected=_ask("nvmlDeviceGetTotalEccErrors", gpu, _UNCORRECTED, _VOLATILE),
                throttling=_ask("nvmlDeviceGetCurrentClocksEventReasons", gpu),
                pcie_replays=_ask("nvmlDeviceGetPcieReplayCounter", gpu),
                remapped_corrected=rows[0],
                remapped_uncorrected=rows[1],
                remapping_pending=_of(rows[2], bool),
                remapping_failed=_of(rows[3], bool),
            )


def _ask(function: str, *arguments: object) -> Any:
    """Return the result of NVML's ``function``; None if it fails, unless the GPU is lost."""
    try:
        return call(function, *arguments)
    except NvmlError as error:
        if error.code == GPU_IS_LOST:
            raise
        return None


def _of(value: Any, convert: Callable[[Any], _T]) -> _T | None:
    return None if value is None else convert(value)


def _thousandth(value: int) -> float:
    return value / _THOUSAND
