"""The results of scenarios, which several checks share."""

from collections import defaultdict
from collections.abc import Callable
from threading import RLock
from typing import Any, TypeVar, cast

from deviceplugin_testing.conformance._check import Failed, NotApplicable

_T = TypeVar("_T")


class Findings:
    """Plays each scenario once in a run. The first caller plays it, and others wait for it."""

    def __init__(self) -> None:
        self._locks: defaultdict[Callable[..., Any], RLock] = defaultdict(RLock)
        self._found: dict[Callable[..., Any], object] = {}
        self._reported: set[Callable[..., Any]] = set()

    def once(self, scenario: Callable[[], _T], name: Callable[..., _T]) -> _T:
        """Return what ``scenario`` found. ``name`` identifies the scenario.

        Raises:
            Failed: It failed, and no check has reported that yet.
            NotApplicable: It raised that, or it failed and a check has reported that.
        """
        with self._locks[name]:
            found = self._play(scenario, name)
            if isinstance(found, Failed) and name not in self._reported:
                self._reported.add(name)
                raise Failed(str(found)) from found
        return self._result(found)

    def before(self, scenario: Callable[[], _T], name: Callable[..., _T]) -> _T:
        """Return what ``scenario`` found, for a check that does not fail because of it.

        Raises:
            NotApplicable: It raised that, or it failed. Another check reports that.
        """
        with self._locks[name]:
            return self._result(self._play(scenario, name))

    def _play(self, scenario: Callable[[], _T], name: Callable[..., _T]) -> _T | Exception:
        if name not in self._found:
            try:
                self._found[name] = scenario()
            except (Failed, NotApplicable) as outcome:
                self._found[name] = outcome
        return cast("_T | Exception", self._found[name])

    def _result(self, found: _T | Exception) -> _T:
        if isinstance(found, Failed):
            raise NotApplicable(f"not seen, because: {found}") from found
        if isinstance(found, NotApplicable):
            raise NotApplicable(str(found)) from found
        return cast("_T", found)
