"""What is told at the start of hooks that could not be called later."""

import functools
import logging
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import pytest
from typing_extensions import override

import deviceplugin as dp
from deviceplugin._discovery.plugin_check import check_plugins, doubtful_methods, hook_problem

R = TypeVar("R")


class Plain(dp.Plugin):
    resource = "x.io/dev"

    @override
    def discover(self) -> Iterable[dp.Device]:
        return ()


def plugin(**members: object) -> dp.Plugin:
    """Return a plugin whose class has ``members``."""
    made: dp.Plugin = type("Lamp", (Plain,), members)()
    return made


async def coroutine(_self: object, *_arguments: object) -> None:
    pass


async def stream(_self: object) -> AsyncIterator[dp.Device]:
    yield dp.Device("a")


def generator(_self: object, *_arguments: object) -> Iterator[None]:
    yield


def alone(_self: object) -> None:
    pass


def with_one(_self: object, _one: object) -> None:
    pass


def with_two(_self: object, _one: object, _two: object) -> None:
    pass


def with_options(_self: object, _one: object, _two: object = 2, *, _three: int = 3) -> None:
    pass


def with_all(*_arguments: object, **_options: object) -> None:
    pass


def unreadable(_self: object) -> object:
    raise OSError("no bus")


def without_self() -> None:
    pass


def injected(hook: Callable[..., R]) -> Callable[..., R]:
    """Give ``hook`` an argument more; as usual, the wrapper says that it is what it wraps."""

    @functools.wraps(hook)
    def wrapper(*arguments: object) -> R:
        return hook(*arguments, "a lock")

    return wrapper


class Answer:
    def __call__(self, *_arguments: object) -> None:
        pass


@dataclass(frozen=True)
class Brightness:
    percent: int = 100


@dataclass(frozen=True)
class Colour:
    name: str


OTHER_ARGUMENTS = "takes other arguments than it is called with: use def"
ASYNC = "is async, but hooks are called from threads: use def, and asyncio.run() in it"


@pytest.mark.parametrize(
    ("members", "problem"),
    [
        ({"allocate": alone}, f"allocate() {OTHER_ARGUMENTS} allocate(self, devices)"),
        ({"allocate": with_two}, f"allocate() {OTHER_ARGUMENTS} allocate(self, devices)"),
        ({"discover": without_self}, f"discover() {OTHER_ARGUMENTS} discover(self)"),
        ({"stop": staticmethod(with_two)}, f"stop() {OTHER_ARGUMENTS} stop(self, resource)"),
        ({"metrics": classmethod(with_one)}, f"metrics() {OTHER_ARGUMENTS} metrics(self)"),
        ({"discover": coroutine}, f"discover() {ASYNC}"),
        ({"discover": stream}, f"discover() {ASYNC}"),
        ({"pre_start": generator}, "pre_start() has a yield, so nothing in it would run"),
        (
            {"metrics": {}},
            "metrics is the name of a hook, but {} cannot be called: choose another name",
        ),
        ({"pre_start": None}, "pre_start is the name of a hook, but None cannot be called"),
        ({"preStart": with_one}, "preStart() is never called: did you mean pre_start()?"),
        ({"allocate_": with_one}, "allocate_() is never called: did you mean allocate()?"),
        ({"resource": "thing"}, "resource 'thing' is not valid: it needs a domain, as in"),
        ({"resource": 5}, "resource 5 is not valid: it must be a string"),
        ({"socket_name": "kubelet"}, "socket_name 'kubelet' is not valid: kubelet.sock is"),
        ({"allocate_with": with_two}, "allocate_with() is never called: set parameters"),
        ({"parameters": Brightness}, "nothing uses its parameters"),
        ({"parameters": 3}, "nothing uses its parameters 3: override allocate_with()"),
        ({"parameters": 3, "allocate_with": with_two}, "3 is not a dataclass"),
        ({"parameters": Colour, "allocate_with": with_two}, "Colour: name needs a default"),
        (
            {"parameters": Brightness, "allocate_with": with_one},
            f"allocate_with() {OTHER_ARGUMENTS}",
        ),
    ],
)
def test_a_hook_that_could_never_be_called_is_a_configuration_error(
    members: dict[str, object], problem: str
) -> None:
    with pytest.raises(dp.ConfigError) as info:
        check_plugins([plugin(**members)])
    assert str(info.value).startswith(f"Lamp: {problem}")


def test_what_is_no_plugin_is_a_configuration_error() -> None:
    for given, text in (
        (Plain, "Plain is a class: give a plugin, Plain()"),
        ("lamp", "'lamp' is not a plugin: its class must be derived from Plugin"),
    ):
        with pytest.raises(dp.ConfigError) as info:
            check_plugins([given])
        assert text == str(info.value)


def test_an_attribute_that_takes_the_place_of_a_hook_is_an_error() -> None:
    lamp = plugin()
    lamp.start = 12.5  # type: ignore[method-assign, assignment]
    assert hook_problem(lamp).startswith("start is the name of a hook, but 12.5 cannot be called")


def told(*_arguments: object) -> None:
    """Say of itself what it takes, as one that wraps another may."""


told.__signature__ = "of what it wraps"  # type: ignore[attr-defined]


class Mixin:
    """Of a library that knows nothing of plugins."""

    def alocate(self, number: int) -> None:
        pass

    def preStart(self, number: int) -> None:  # noqa: N802
        pass


class Ready(Mixin, Plain):
    """Has helpers of its own, whose names are not far from hooks."""

    class Metrics:
        """A class is not a method."""

    restarted = 0
    allocated: Sequence[str] = ()

    def __init__(self) -> None:
        self.metrics = {"lamps": 1}  # type: ignore[method-assign, assignment]

    def restart(self) -> None:
        pass

    def changed(self) -> bool:
        return False

    def metric(self, name: str) -> int:
        return len(name)

    def _alocate(self, devices: Sequence[dp.Device]) -> None:
        pass

    @override
    def released(self, devices: Sequence[dp.Device]) -> None:
        self.release(devices)

    def release(self, devices: Sequence[dp.Device]) -> None:
        pass


@pytest.mark.parametrize(
    "fine",
    [
        Plain(),
        Ready(),
        plugin(allocate=with_options),
        plugin(allocate=told),
        plugin(allocate=with_all, prefer=with_all, metrics=with_all),
        plugin(allocate=injected(with_two)),
        plugin(start=functools.partialmethod(with_two, 1)),
        plugin(stop=staticmethod(alone)),
        plugin(released=classmethod(with_one)),
        plugin(start=Answer()),
        plugin(discover=generator, prefer=generator, changes=generator, metrics=generator),
        plugin(pre_start=with_one, preStart=with_one),
        plugin(parameters=Brightness, allocate_with=with_two),
        plugin(parameters=Brightness, allocate_with=with_two, allocate=with_one),
        plugin(metrics=property(unreadable)),
    ],
)
def test_hooks_that_can_be_called_are_fine_and_so_are_helpers(
    fine: dp.Plugin, caplog: pytest.LogCaptureFixture
) -> None:
    check_plugins([fine])
    assert [] == caplog.records


@pytest.mark.parametrize(
    ("name", "method", "hook"),
    [
        ("alloacte", with_one, "allocate"),
        ("pre_strat", with_one, "pre_start"),
        ("release", with_one, "released"),
        ("metric", alone, "metrics"),
        ("strat", with_all, "start"),
    ],
)
def test_a_method_that_is_close_to_a_hook_is_warned_of_with_what_may_be_meant(
    caplog: pytest.LogCaptureFixture, name: str, method: Callable[..., Any], hook: str
) -> None:
    check_plugins([plugin(**{name: method})])
    assert [(logging.WARNING, "possibly misspelt hook", "Lamp", name, hook)] == [
        (record.levelno, record.getMessage(), record.plugin, record.method, record.did_you_mean)  # type: ignore[attr-defined]
        for record in caplog.records
    ]


@pytest.mark.parametrize("name", ["restart", "reload", "changed", "step", "look", "close", "open"])
def test_a_method_that_takes_other_arguments_than_the_hook_is_no_misspelt_one(name: str) -> None:
    assert {} == doubtful_methods(plugin(**{name: alone}))
