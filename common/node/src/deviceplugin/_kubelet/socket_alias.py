"""A second, fixed name of a plugin's socket, for programs that look for it."""

from contextlib import suppress
from pathlib import Path

from deviceplugin._platform.unix_sockets import answers


class SocketAlias:
    """A symbolic link ``path`` to the socket ``target``, which is in the same directory.

    The kubelet is never given it: several plugins may want the same fixed name, and whoever dials
    one by it could reach another. So it does not matter who has it, or that it is lost.
    """

    def __init__(self, path: Path, target: str) -> None:
        self.path, self._target = path, target

    def claim(self) -> str:
        """Have the link; return why that is not possible, or an empty string.

        It is taken from a plugin that has died, and from nobody else.
        """
        try:
            if self._is_ours():
                return ""
            if answers(self.path):
                return "another plugin that is running has this name"
            link = self.path.with_name(f".{self._target}")
            link.unlink(missing_ok=True)
            link.symlink_to(self._target)
            link.replace(self.path)
        except OSError as error:
            return error.strerror or str(error)
        return ""

    def release(self) -> None:
        """Remove the link, unless another plugin has it."""
        with suppress(OSError):
            if self._is_ours():
                self.path.unlink()

    def _is_ours(self) -> bool:
        return self.path.is_symlink() and str(self.path.readlink()) == self._target
