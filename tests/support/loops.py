"""Tests that are coroutines."""

import asyncio
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any


def on_a_loop(test: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    """Return a test that runs ``test`` on an event loop of its own."""

    @wraps(test)
    def run() -> None:
        asyncio.run(test())

    return run
