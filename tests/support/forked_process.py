"""Plugins under check that start in milliseconds: Python and their modules are loaded already."""

import multiprocessing
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from multiprocessing.connection import Connection
from typing import Any, BinaryIO

_CONTEXT = multiprocessing.get_context("forkserver")

DEVNULL = subprocess.DEVNULL
TimeoutExpired = subprocess.TimeoutExpired


def preload(*modules: str) -> None:
    """Have ``modules`` imported before the first process is forked."""
    _CONTEXT.set_forkserver_preload(list(modules))


def Popen(words: Sequence[str], **options: Any) -> Any:  # noqa: N802 - as in subprocess
    """Start ``MODULE.CLASS ARGUMENT...`` of the tests by a fork, and other commands as usual."""
    if "/" not in words[0] and words[0].rpartition(".")[2][0].isupper():
        return Forked(words, **options)
    return subprocess.Popen(words, **options)


class Forked:
    """The part of ``subprocess.Popen`` that is used; it runs ``main()`` of an instance."""

    def __init__(
        self,
        words: Sequence[str],
        *,
        env: Mapping[str, str],
        stdin: int,
        stdout: BinaryIO,
        stderr: BinaryIO,
        start_new_session: bool,
    ) -> None:
        assert start_new_session
        assert stdin == DEVNULL
        assert stdout is stderr
        self._words = words
        ready, ours = _CONTEXT.Pipe(duplex=False)
        self._process = _CONTEXT.Process(
            target=_run, args=(list(words), dict(env), stdout.name, ours)
        )
        self._process.start()
        ours.close()
        ready.poll(10)
        ready.close()
        assert self._process.pid is not None
        self.pid: int = self._process.pid

    def poll(self) -> int | None:
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        self._process.join(timeout)
        if self._process.exitcode is None:
            assert timeout is not None
            raise TimeoutExpired(self._words, timeout)
        return self._process.exitcode

    def terminate(self) -> None:
        self._process.terminate()


def _run(words: list[str], env: dict[str, str], output: str, ready: Connection) -> None:
    os.setsid()
    os.environ.update(env)
    sys.argv = ["forked", *words]
    with open(output, "ab") as sink:  # noqa: PTH123 - a name of bytes or of str
        os.dup2(sink.fileno(), 1)
        os.dup2(sink.fileno(), 2)
    ready.close()  # the session is there, so that a signal reaches it
    module, _, name = words[0].rpartition(".")
    sys.exit(getattr(import_module(module), name)().main())
