"""Modules that libraries import and a plugin may never use: they are executed at their first use.

OpenSSL is most of it, which asyncio and ``urllib`` import. ``importlib.util.LazyLoader`` would not
do: with it the statement ``import ssl`` is a use already. No module that one of these imports uses
it while it is imported itself, so two threads do not wait for each other.
"""

import importlib
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any, Final
from weakref import WeakKeyDictionary

from typing_extensions import override

LATE: Final = frozenset(
    {
        "asyncio.sslproto",
        "google.protobuf.internal.python_message",  # what upb does in C
        "hashlib",
        "ipaddress",
        "prometheus_client",  # the package, which imports servers; not its parts
        "prometheus_client.asgi",
        "shutil",
        "ssl",
        "tempfile",
    }
)
_FIRST: Final = {"prometheus_client.asgi": "prometheus_client.exposition"}
"""What must be imported before a module: they import each other, and the package knows the order.
"""
_PASSIVE: Final = frozenset(
    {"__class__", "__file__", "__loader__", "__name__", "__package__", "__path__", "__spec__"}
    | {"__cached__", "__warningregistry__"}
)
"""What the import system, pytest and ``warnings`` read of modules that nobody uses."""


def install() -> None:
    """Have the modules in ``LATE`` that are imported from now on executed at their first use.

    Importers see no difference, except that an error in one of them comes at that use.
    """
    finders = sys.meta_path
    if not any(isinstance(finder, _Finder) for finder in finders):
        # Those before it, such as the hooks of an instrumentation, go on seeing these modules.
        place = finders.index(PathFinder) if PathFinder in finders else 0
        finders.insert(place, _Finder())


class _Finder:
    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name not in LATE or target is not None:  # a reload
            return None
        if name == "ssl" and not (_BUILT_IN or PathFinder.find_spec("_ssl")):
            return None  # importers expect an ImportError now
        spec = PathFinder.find_spec(name, path)
        if spec and spec.loader:
            spec.loader = _Loader(spec.loader)  # type: ignore[assignment]
        return spec


_BUILT_IN: Final = "_ssl" in sys.builtin_module_names


class _Loader:
    """Executes a module by ``real`` once somebody uses it."""

    def __init__(self, real: Any) -> None:
        self._real = real
        self._lock = threading.RLock()
        self._is_loading = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        module: ModuleType | None = self._real.create_module(spec)
        return module

    def exec_module(self, module: ModuleType) -> None:
        _loaders[module] = self
        module.__class__ = _Late

    def execute(self, module: ModuleType) -> None:
        """Execute ``module`` unless that was done, or this thread is doing it; others wait."""
        if first := _FIRST.get(module.__name__):
            importlib.import_module(first)
        with self._lock:
            if self._is_loading or type(module) is not _Late:
                return
            self._is_loading = True
            try:
                self._real.exec_module(module)
                for owner, name in ((module.__spec__, "loader"), (module, "__loader__")):
                    if getattr(owner, name, None) is self:
                        setattr(owner, name, self._real)
                object.__setattr__(module, "__class__", ModuleType)
            finally:
                self._is_loading = False


class _Late(ModuleType):
    """A module that is executed before anything of it is read or set."""

    @override
    def __getattribute__(self, name: str) -> Any:
        if name not in _PASSIVE and not _import_part(self, name):
            _execute(self)
        return ModuleType.__getattribute__(self, name)

    @override
    def __setattr__(self, name: str, value: Any) -> None:
        if not (isinstance(value, ModuleType) and value.__name__ == f"{self.__name__}.{name}"):
            _execute(self)  # else it is a part, and its import sets it
        ModuleType.__setattr__(self, name, value)

    @override
    def __delattr__(self, name: str) -> None:
        _execute(self)
        ModuleType.__delattr__(self, name)


def _import_part(module: ModuleType, name: str) -> bool:
    """Return whether the package ``module`` has a module ``name``, which is imported."""
    folders, whole = getattr(module, "__path__", None), f"{module.__name__}.{name}"
    if folders is not None and PathFinder.find_spec(whole, folders) is not None:
        with suppress(ImportError):  # it needs what is not installed
            importlib.import_module(whole)
            return True
    return False


_loaders: Final = WeakKeyDictionary[ModuleType, _Loader]()
"""Those of modules that are or were late. Import hooks put their own into specifications."""


def _execute(module: ModuleType) -> None:
    _loaders[module].execute(module)
