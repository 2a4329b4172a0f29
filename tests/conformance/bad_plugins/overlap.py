"""Plugins that do one thing wrong beside another instance of themselves."""

import os
from contextlib import suppress

import grpc
from tests.conformance.bad_plugins.good import Good, Identity
from typing_extensions import override


class OwnSocket(Good):
    """One of several instances, each with a socket of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.socket = self.directory / f"{os.getpid()}.sock"

    @override
    def begin(self) -> None:
        self.is_first = not self.sockets()

    def sockets(self) -> int:
        return len([*self.directory.glob("[0-9]*.sock")])


class FightsForTheResource(OwnSocket):
    @override
    def watch(self, kubelet: Identity) -> None:
        while not self.stopping.wait(0.05):
            with suppress(grpc.RpcError):
                self.register()


class WaitsForAnEmptyDirectory(OwnSocket):
    @override
    def begin(self) -> None:
        if self.sockets():
            self.stopping.wait()


class GivesWay(OwnSocket):
    @override
    def look(self) -> None:
        if self.is_first and self.sockets() > 1:
            self.stop()
            self.stopping.wait()
