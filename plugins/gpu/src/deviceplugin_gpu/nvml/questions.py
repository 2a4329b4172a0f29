"""Queries about one GPU, some of which the driver may not answer."""

from dataclasses import dataclass
from typing import Any

from deviceplugin_gpu.nvml import api
from deviceplugin_gpu.nvml.api import Handle, NvmlError, call


@dataclass(frozen=True, slots=True)
class Questions:
    """Queries about one GPU. Failed ones are added to ``unanswered``."""

    uuid: str
    handle: Handle
    unanswered: list[str]

    def ask(self, default: Any, function: str, *arguments: object) -> Any:
        """Return the result of ``function``, or ``default`` if it fails.

        Raises:
            NvmlError: The GPU cannot be used at all.
        """
        try:
            return call(function, self.handle, *arguments)
        except NvmlError as error:
            if error.code in api.UNUSABLE:
                raise
            if error.code not in api.MISSING:
                self.unanswered.append(f"GPU {self.uuid}: {error}")
            return default
