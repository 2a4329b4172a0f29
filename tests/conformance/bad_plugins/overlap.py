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

    def is_alone(self) -> bool:
        return len([*self.directory.glob("[0-9]*.sock")]) < 2


class FightsForTheResource(OwnSocket):
    @override
    def watch(self, kubelet: Identity) -> None:
        while not self.stopping.wait(0.05):
            with suppress(grpc.RpcError):
                self.register()


class WaitsForAnEmptyDirectory(OwnSocket):
    @override
    def begin(self) -> None:
        if any(self.directory.glob("[0-9]*.sock")):
            self.stopping.wait()


class GivesWay(OwnSocket):
    @override
    def look(self) -> None:
        if not self.is_alone():
            self.stop()
            self.stopping.wait()
