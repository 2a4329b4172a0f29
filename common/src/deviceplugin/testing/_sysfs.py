"""Reading sysfs with injected faults, such as those of a device that disappears."""

import os
from typing import Final

from typing_extensions import override

from deviceplugin.kit.sysfs import Kernel


class FailingKernel(Kernel):
    """Reads as the kernel does, except for paths that must fail.

    ::

        kernel = FailingKernel()
        sysfs = Sysfs(tmp_path, kernel)
        kernel.faults[tmp_path / "class/drm/card0/device/vendor"] = errno.ENODEV

    Paths below a failing path fail too. Remove the path from ``faults`` to repair it.
    """

    def __init__(self) -> None:
        self.faults: Final[dict[str | os.PathLike[str], int]] = {}
        """The number of the error, by the path as it is read."""

    @override
    def read(self, path: str, *pages: int) -> bytes:
        self._fail(path)
        return super().read(path, *pages)

    @override
    def names(self, path: str) -> list[str]:
        self._fail(path)
        return super().names(path)

    @override
    def link(self, path: str) -> str:
        self._fail(path)
        return super().link(path)

    @override
    def resolve(self, path: str) -> str:
        self._fail(path)
        return super().resolve(path)

    def _fail(self, path: str) -> None:
        for one, number in self.faults.items():
            place = os.fspath(one)
            if path == place or path.startswith(f"{place}/"):
                raise OSError(number, os.strerror(number), path)
