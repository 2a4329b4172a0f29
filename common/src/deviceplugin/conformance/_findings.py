"""What scenarios showed, which several checks look at."""

from collections import defaultdict
from collections.abc import Callable
from threading import RLock
from typing import Any, TypeVar, cast

from deviceplugin.conformance._check import Failed, NotApplicable

_T = TypeVar("_T")


class Findings:
    """Has each scenario played once in a run, by whoever asks first; others wait for it."""

    def __init__(self) -> None:
        self._locks: defaultdict[Callable[..., Any], RLock] = defaultdict(RLock)
        self._found: dict[Callable[..., Any], object] = {}
        self._told: set[Callable[..., Any]] = set()

    def once(self, scenario: Callable[[], _T], name: Callable[..., _T]) -> _T:
        """Return what ``scenario`` found, which is known as ``name``.

        Raises:
            Failed: It failed, and no check has reported it yet.
            NotApplicable: It raised that, or it failed and a check has reported it.
        """
        with self._locks[name]:
            found = self._play(scenario, name)
            if isinstance(found, Failed) and name not in self._told:
                self._told.add(name)
                raise Failed(str(found)) from found
        return self._seen(found)

    def before(self, scenario: Callable[[], _T], name: Callable[..., _T]) -> _T:
        """Return what ``scenario`` found, for a check to which its failing is no failure.

        Raises:
            NotApplicable: It raised that, or it failed; another check reports that.
        """
        with self._locks[name]:
            return self._seen(self._play(scenario, name))

    def _play(self, scenario: Callable[[], _T], name: Callable[..., _T]) -> _T | Exception:
        if name not in self._found:
            try:
                self._found[name] = scenario()
            except (Failed, NotApplicable) as outcome:
                self._found[name] = outcome
        return cast("_T | Exception", self._found[name])

    def _seen(self, found: _T | Exception) -> _T:
        if isinstance(found, Failed):
            raise NotApplicable(f"not seen, because: {found}") from found
        if isinstance(found, NotApplicable):
            raise NotApplicable(str(found)) from found
        return cast("_T", found)
