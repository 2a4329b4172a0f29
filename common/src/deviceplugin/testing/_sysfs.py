"""A sysfs that fails as the kernel's does while a device goes."""

import os
from typing import Final

from typing_extensions import override

from deviceplugin.kit.sysfs import Kernel


class FailingKernel(Kernel):
    """Reads as the kernel does, but for the paths that are to fail.

    ::

        kernel = FailingKernel()
        sysfs = Sysfs(tmp_path, kernel)
        kernel.faults[tmp_path / "class/drm/card0/device/vendor"] = errno.ENODEV

    A path below one that fails, fails too. Take the path out of ``faults`` to mend it.
    """

    def __init__(self) -> None:
        self.faults: Final[dict[str | os.PathLike[str], int]] = {}
        """Number of the error by path, as the path is asked for."""

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
