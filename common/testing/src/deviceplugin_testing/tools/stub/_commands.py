"""The commands of the stub plugin."""

from collections.abc import Mapping

import grpc

from deviceplugin._platform import rpc
from deviceplugin.proto.v1beta1 import HEALTHY
from deviceplugin_testing.simulator import StubError
from deviceplugin_testing.simulator._clock import PATIENCE
from deviceplugin_testing.simulator._stubs.plugin import StubPlugin
from deviceplugin_testing.tools._console import Command, CommandError, number


class StubCommands:
    """The commands, by name, in ``table``."""

    def __init__(self, plugin: StubPlugin) -> None:
        self._plugin = plugin
        self.table: Mapping[str, Command] = {
            "devices": Command(self.devices, "[ID[:HEALTH]...]", "send this list"),
            "fail": Command(self.fail, "METHOD CODE [TEXT...]", "fail calls of a method"),
            "heal": Command(self.heal, "", "stop failing calls"),
            "hold": Command(self.hold, "METHOD", "make calls of a method wait"),
            "release": Command(self.release, "", "let all calls continue"),
            "end-stream": Command(self.end_stream, "", "return from ListAndWatch"),
            "register": Command(self.register, "", "register with the kubelet"),
            "stop": Command(self.stop, "", "stop serving and delete the socket"),
            "start": Command(self.start, "", "serve again, without registering"),
            "calls": Command(self.calls, "", "show the calls so far"),
            "wait": Command(
                self.wait, "METHOD [COUNT]", f"wait for calls of a method, {PATIENCE:g} s at most"
            ),
        }

    def devices(self, *devices: str) -> None:
        """Send a list."""
        self._plugin.update(parse_devices(devices))

    def fail(self, method: str, code: str, *text: str) -> None:
        """Fail calls."""
        try:
            status = grpc.StatusCode[code.upper()]
        except KeyError:
            known = ", ".join(each.name for each in grpc.StatusCode)
            raise CommandError(f"unknown code {code!r}; known are {known}") from None
        self._plugin.failing[method] = StubError(" ".join(text) or "told to fail", status)

    def heal(self) -> None:
        """Stop failing calls."""
        self._plugin.failing.clear()

    def hold(self, method: str) -> None:
        """Hold calls."""
        self._plugin.hold(method)

    def release(self) -> None:
        """Release calls."""
        self._plugin.release()

    def end_stream(self) -> None:
        """End all streams."""
        self._plugin.end_streams()

    def register(self) -> str:
        """Register."""
        try:
            self._plugin.register()
        except grpc.RpcError as error:
            raise CommandError(f"not registered: {rpc.status_text(error)}") from None
        return f"registered {self._plugin.resource}"

    def stop(self) -> None:
        """Stop serving."""
        self._plugin.stop()

    def start(self) -> None:
        """Serve."""
        self._plugin.start()

    def calls(self) -> str:
        """Show the calls."""
        return "\n".join(self._plugin.calls) or "none"

    def wait(self, method: str, count: str = "1") -> None:
        """Wait for calls."""
        wanted = int(number(count))
        try:
            self._plugin.wait(lambda: self._plugin.calls.count(method) >= wanted, timeout=PATIENCE)
        except TimeoutError as error:
            raise CommandError(str(error)) from None


def parse_devices(words: tuple[str, ...]) -> dict[str, str]:
    """Return id to health of ``ID`` or ``ID:HEALTH`` words; without health it is healthy."""
    pairs = [word.rpartition(":") for word in words]
    return {id_ or health: health if id_ else HEALTHY for id_, _, health in pairs}
