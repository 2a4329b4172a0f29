"""Threads that are used again: starting one takes longer than most calls that need one."""

import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Final

Task = Callable[[], None]

_IDLE: Final = 2.0
"""Seconds after which a thread without a task ends."""


class Threads:
    """As many threads as there are tasks at a time. They are daemons, because a task can hang."""

    def __init__(self, idle: float = _IDLE) -> None:
        self._idle = idle
        self._free: list[SimpleQueue[Task]] = []
        """The queues of threads without a task. The last one is used first, so others can end."""
        self._lock = threading.Lock()

    def run(self, name: str, task: Task) -> None:
        """Run ``task``, which must not raise; RuntimeError if the node has no thread left."""

        def named() -> None:
            threading.current_thread().name = name
            task()

        with self._lock:
            queue = self._free.pop() if self._free else None
        if queue is None:
            threading.Thread(target=self._work, args=(named,), name=name, daemon=True).start()
        else:
            queue.put(named)

    def _work(self, task: Task | None) -> None:
        queue: SimpleQueue[Task] = SimpleQueue()
        while task is not None:
            task()
            task = None  # what it refers to must not outlive it
            threading.current_thread().name = "idle"
            with self._lock:
                self._free.append(queue)
            task = self._next(queue)

    def _next(self, queue: "SimpleQueue[Task]") -> Task | None:
        """Return the next task of the thread; None if there is none for too long."""
        try:
            return queue.get(timeout=self._idle)
        except Empty:
            with self._lock:
                if queue in self._free:
                    self._free.remove(queue)
                    return None
        return queue.get()  # the thread was chosen meanwhile
