"""A driver that is killed between any two steps: nothing is lost, and nothing is given twice."""

import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from deviceplugin._attribution.ownership import Claim
from deviceplugin._platform.hooks import HookFailedError
from deviceplugin.kit import files
from drivers.cakes import CakeNode, piece
from drivers.driver_node import DriverNode, gopher, result


class KilledError(BaseException):
    """Ends the process here; nothing that comes later has an effect on the disk."""


class Kill(NamedTuple):
    """A kill at a step; called, it returns whether it came to that."""

    killed: list[bool]
    step: Callable[[], None]
    """Counts one step more."""

    def __call__(self) -> bool:
        return bool(self.killed)


@contextmanager
def killed_after(steps: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[Kill]:
    """Kill whoever writes or removes files, before the step of this number or after it.

    An odd number is after a step.
    """
    left, killed = [steps], []

    def count() -> None:
        if not left[0]:
            killed.append(True)
            raise KilledError
        left[0] -= 1

    def step(do: Callable[..., Any]) -> Callable[..., Any]:
        def run(*args: Any, **options: Any) -> Any:
            count()
            done = do(*args, **options)
            count()
            return done

        return run

    with monkeypatch.context() as patch:
        patch.setattr(files, "write", step(files.write))
        patch.setattr(files, "remove", step(files.remove))
        patch.setattr(files, "sync", step(files.sync))
        with suppress(KilledError):
            yield Kill(killed, count)


def kills(
    monkeypatch: pytest.MonkeyPatch,
    path: Path,
    do: Callable[[DriverNode], object],
    before: Callable[[DriverNode], object] = lambda _node: None,
) -> Iterator[DriverNode]:
    """Yield a node on which ``do`` was killed after each number of steps, started again."""
    for steps in range(100):
        node = DriverNode(path / str(steps), gopher("gary"), gopher("gerd")).describing()
        before(node)
        with killed_after(steps, monkeypatch) as was_killed:
            do(node)
        if not was_killed():
            assert steps > 3
            return
        yield node
    raise AssertionError("there is no end to the steps")


def allocated(node: DriverNode) -> Claim:
    return node.allocate("one", result("gary"), result("gerd"))


@pytest.mark.parametrize("begin_again", [DriverNode.restart, DriverNode.boot])
@pytest.mark.parametrize("repeats", [True, False])
def test_a_prepare_that_was_killed_gives_the_same_answer_when_it_is_repeated_or_is_released(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    begin_again: Callable[[DriverNode], None],
    repeats: bool,
) -> None:
    whole = DriverNode(tmp_path / "whole", gopher("gary"), gopher("gerd")).describing()
    expected = whole.prepare(allocated(whole))
    for node in kills(monkeypatch, tmp_path, lambda node: node.prepare(allocated(node))):
        claim, other = allocated(node), node.allocate("two", result("gary"))
        begin_again(node)
        if node.recorded():  # whether anything was given is not known
            assert "gary is held by claim default/one" == node.refusal(other)
        if repeats:
            assert expected == node.prepare(claim)
            assert ["k8s.gopher.example.com-claim_uid-one.json"] == node.cdi_files()
            assert ["uid-one_one.json"] == node.metadata_files()
            assert "gary is held by claim default/one" == node.refusal(other)
        node.unprepare(claim)
        assert ([], [], {}) == (node.recorded(), node.cdi_files(), node.ownership.claims())
        assert [] == node.metadata_files()
        node.prepare(other)


def test_a_call_for_several_claims_that_was_killed_is_repeated_or_undone_claim_by_claim(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def both(node: DriverNode) -> list[Claim]:
        return [node.allocate(name, result(name)) for name in ("gary", "gerd")]

    expected = {"uid-gary": ["gary"], "uid-gerd": ["gerd"]}
    for node in kills(monkeypatch, tmp_path, lambda node: node.prepare_all(*both(node))):
        node.restart()
        for name in (Path(one).stem.removeprefix("uid-") for one in node.recorded()):
            other = node.allocate("other", result(name))
            assert f"{name} is held by claim default/{name}" == node.refusal(other)
        assert expected == node.prepare_all(*both(node))
        assert 2 == len(node.cdi_files()) == len(node.metadata_files())
        assert {"uid-gary": None, "uid-gerd": None} == node.unprepare_all(*both(node))
        assert ([], [], {}) == (node.recorded(), node.cdi_files(), node.ownership.claims())


def test_an_unprepare_that_was_killed_releases_everything_when_it_is_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def prepare(node: DriverNode) -> None:
        node.prepare(allocated(node))

    def unprepare(node: DriverNode) -> None:
        node.unprepare(Claim("default", "one", "uid-one"))

    for node in kills(monkeypatch, tmp_path, unprepare, before=prepare):
        node.restart()
        if node.recorded():
            other = node.allocate("two", result("gary"))
            assert "gary is held by claim default/one" == node.refusal(other)
        unprepare(node)
        assert ("released", ["gary", "gerd"]) in node.plugin.calls
        assert ([], [], {}) == (node.recorded(), node.cdi_files(), node.ownership.claims())
        assert [] == node.metadata_files()


class Disk:
    """What is in ``directory`` after a loss of power: what was synced, and perhaps more names."""

    def __init__(self, directory: Path, patch: pytest.MonkeyPatch) -> None:
        self._directory, self._fsync = directory, os.fsync
        self._names: dict[str, int] = {}
        """The numbers of the files that surely have a name."""
        self._contents: dict[int, bytes] = {}
        """What is surely in the file of a number, which no other file gets on tmpfs."""
        patch.setattr(os, "fsync", self._sync)

    def _sync(self, descriptor: int) -> None:
        self._fsync(descriptor)
        status = os.fstat(descriptor)
        if not stat.S_ISDIR(status.st_mode):
            self._contents[status.st_ino] = Path(f"/proc/self/fd/{descriptor}").read_bytes()
        elif self._directory.exists() and status.st_ino == self._directory.stat().st_ino:
            self._names = self._now()

    def _now(self) -> dict[str, int]:
        return {one.name: one.stat().st_ino for one in self._directory.glob("*")}

    def lose_power(self, *, keeps_names: bool) -> None:
        """Keep what was synced, and also the names since then if ``keeps_names``."""
        names = self._now() if keeps_names else self._names
        found = {name: self._contents.get(number, b"") for name, number in names.items()}
        for path in self._directory.glob("*"):
            path.unlink()
        for name, content in found.items():
            (self._directory / name).write_bytes(content)
        self._contents = {self._now()[name]: content for name, content in found.items()}
        self._names = self._now()


@pytest.mark.parametrize("keeps_names", [True, False])
@pytest.mark.parametrize("repeats", [True, False])
@pytest.mark.parametrize("undoes", [True, False])
def test_a_loss_of_power_undoes_nothing_that_was_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keeps_names: bool, undoes: bool, repeats: bool
) -> None:
    disks: dict[Path, Disk] = {}
    two = ("gary", "gerd")

    def claims(node: DriverNode) -> list[Claim]:
        return [node.allocate(name, result(name)) for name in two]

    def begin(node: DriverNode) -> None:
        node.resource.publish([*map(gopher, (*two, "other"))])
        disks[node.path] = Disk(node.claims_dir, monkeypatch)
        node.prepare(node.allocate("old", result("other")))
        if undoes:
            node.prepare_all(*claims(node))

    def call(node: DriverNode) -> object:
        return (node.unprepare_all if undoes else node.prepare_all)(*claims(node))

    def lose_power(node: DriverNode, *, keeps_names: bool = keeps_names) -> None:
        disks[node.path].lose_power(keeps_names=keeps_names)
        node.boot()

    for node in kills(monkeypatch, tmp_path, call, before=begin):
        lose_power(node)
        assert "other is held by claim default/old" == node.refusal(
            node.allocate("new", result("other"))
        )
        if repeats:
            assert {f"uid-{one}": [one] for one in two} == node.prepare_all(*claims(node))
            lose_power(node)
            assert 3 == len(node.records.all())
        node.unprepare_all(*claims(node))
        lose_power(node, keeps_names=False)
        assert ["uid-old.json"] == node.recorded()


# Parts.

HALF = "cake/half@0"


def part_kills(
    monkeypatch: pytest.MonkeyPatch,
    path: Path,
    do: Callable[[CakeNode], object],
    before: Callable[[CakeNode], object] = lambda _node: None,
) -> Iterator[CakeNode]:
    """Yield nodes with parts as ``kills`` does; also killed before and after each hook's work."""
    for steps in range(100):
        node = CakeNode(path / str(steps), "cake", "pie")
        before(node)
        with killed_after(steps, monkeypatch) as was_killed:
            hooks = ("make", "made", "unmake", "unmade")
            node.cakes.faults = dict.fromkeys(hooks, was_killed.step)
            with suppress(HookFailedError):  # it was killed in the thread of a hook
                do(node)
        node.cakes.faults = {}
        if not was_killed():
            assert steps > 5
            return
        yield node
    raise AssertionError("there is no end to the steps")


def cut(node: CakeNode) -> Claim:
    return node.allocate("one", piece(HALF), piece("pie/quarter@1", "two"))


@pytest.mark.parametrize("begin_again", [CakeNode.restart, CakeNode.boot])
@pytest.mark.parametrize("repeats", [True, False])
def test_parts_whose_prepare_was_killed_are_finished_or_removed(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    begin_again: Callable[[CakeNode], None],
    *,
    repeats: bool,
) -> None:
    for node in part_kills(monkeypatch, tmp_path, lambda node: node.prepare(cut(node))):
        claim, other = cut(node), node.allocate("two", piece("cake/quarter@1"))
        strange = node.kitchen.strange = {"cake/quarter@3": "x"}
        begin_again(node)
        assert node.kitchen.cut.keys() <= node.written_parts().keys(), "each has a record before"
        if node.recorded():
            assert "without room" in node.refusal(other)
        if repeats:
            node.prepare(claim)
            assert node.written_parts() == node.kitchen.cut == node.cakes.made
            assert {HALF, "pie/quarter@1"} == node.kitchen.cut.keys()
            assert "without room" in node.refusal(other)
        node.unprepare(claim)
        assert node.is_empty()
        node.prepare(other)
        assert strange.items() <= node.kitchen.strange.items() or begin_again is CakeNode.boot


@pytest.mark.parametrize("begin_again", [CakeNode.restart, CakeNode.boot])
@pytest.mark.parametrize("is_wanted_again", [True, False])
def test_parts_whose_removal_was_killed_are_removed_when_it_is_repeated_or_made_again(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    begin_again: Callable[[CakeNode], None],
    *,
    is_wanted_again: bool,
) -> None:
    for node in part_kills(
        monkeypatch,
        tmp_path,
        lambda node: node.unprepare(cut(node)),
        before=lambda node: node.prepare(cut(node)),
    ):
        begin_again(node)
        assert node.kitchen.cut.keys() <= node.written_parts().keys()
        if is_wanted_again:
            node.prepare(cut(node))
            assert node.written_parts() == node.kitchen.cut == node.cakes.made
            assert {HALF, "pie/quarter@1"} == node.kitchen.cut.keys()
        node.unprepare(cut(node))
        assert node.is_empty()
        node.prepare(node.allocate("two", piece("cake")))
