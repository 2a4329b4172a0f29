"""Two instances of a plugin on a node, as in a rolling update with ``maxSurge: 1``."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import grpc

from deviceplugin_testing.conformance._check import CheckGroup, Failed, NotApplicable
from deviceplugin_testing.conformance._node import PluginNode
from deviceplugin_testing.conformance._process import Plugin
from deviceplugin_testing.conformance._trial import Trial
from deviceplugin_testing.simulator._host.release import Release

GROUP: Final = CheckGroup("overlap", "Two instances", disturbing=True)
_MOST: Final = 2
"""Most registrations while nothing changes, once both run. One may be under way already."""


@contextmanager
def _two(trial: Trial) -> Iterator[tuple[PluginNode, Plugin, Plugin]]:
    """Give a node with an older and a newer instance, of which the newer has had its time."""
    if not Release.of(trial.subject.kubelet_version).tracks_sockets:
        raise NotApplicable(f"{trial.subject.kubelet_version} takes two instances for one")
    node = trial.fresh()
    if not node.healthy:
        raise NotApplicable("no healthy device is listed")
    older = node.plugin
    assert older is not None
    begin, newer = time.monotonic(), node.launch(beside=True)
    try:
        # One that waits until the older one ends is as good as one that takes over at once.
        node.wait(lambda: node.back(begin), trial.limits.look + 2 * trial.start_took)
        node.observe(trial.limits.look)
        yield node, older, newer
    finally:
        older.kill()
        newer.kill()


@GROUP.check(
    "quiet",
    "Two instances leave the resource to one of them",
    why="Each registration makes the kubelet call another process and write its checkpoint.",
    apart=True,
)
def _quiet(trial: Trial) -> str:
    peace = trial.limits.quiet / 2
    with _two(trial) as (node, _, _):
        before = len(node.kubelet.registrations(node.resource))

        def count() -> int:
            return len(node.kubelet.registrations(node.resource)) - before

        if node.wait(lambda: count() > _MOST, peace):
            raise Failed(f"registered {count()} times in less than {peace:g} s of peace")
        return f"registered {count()} times in {peace:g} s with two instances"


def _stays(node: PluginNode, trial: Trial, what: str) -> str:
    """Wait until the instance that is left allocates a device that the kubelet has as healthy."""
    begin, problem = time.monotonic(), "no healthy device"

    def serves() -> bool:
        nonlocal problem
        try:
            ids = sorted(node.kubelet.healthy(node.resource))[:1]
            if ids:
                node.kubelet.allocate(node.resource, ids, timeout=node.limits.call)
        except (LookupError, grpc.RpcError) as error:
            problem, ids = str(error), []
        return bool(ids)

    if not node.wait(serves, trial.limits.within):
        raise Failed(f"nothing is allocated {trial.limits.within:g} s after {what}: {problem}")
    return f"allocates {time.monotonic() - begin:.2f} s after {what}"


@GROUP.check(
    "older-ends",
    "The newer instance has the resource once the older one has ended",
    why="A rolling update ends the older one when the newer one is ready.",
    apart=True,
)
def _older_ends(trial: Trial) -> str:
    with _two(trial) as (node, older, newer):
        node.plugin = newer
        older.terminate(trial.limits.stop)
        return _stays(node, trial, "the older one ended")


@GROUP.check(
    "newer-killed",
    "The older instance has the resource again once the newer one was killed",
    why="An update that is rolled back, or a node out of memory, kills the newer one.",
    apart=True,
)
def _newer_killed(trial: Trial) -> str:
    with _two(trial) as (node, older, newer):
        node.plugin = older
        newer.kill()
        return _stays(node, trial, "the newer one was killed")
