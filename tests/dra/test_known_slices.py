"""Which slices there are, from a watch that is late and from our own writes."""

from typing import Any

from deviceplugin._dra.slices.store import KnownSlices


def a_slice(name: str, version: str, generation: int = 1, uid: str = "") -> dict[str, Any]:
    metadata = {"name": name, "uid": uid or f"uid-{name}", "resourceVersion": version}
    return {"metadata": {**metadata, "generation": generation}}


def test_nothing_is_known_before_the_first_list() -> None:
    known = KnownSlices()
    assert known.current() is None
    known.listed({}, "1")
    assert [] == known.current()


def test_an_answer_counts_until_the_watch_has_it() -> None:
    known = KnownSlices()
    old, new = a_slice("a", "5"), a_slice("a", "7", 2)
    known.listed({"a": old}, "6")
    known.wrote(new)
    known.listed({"a": old}, "6")
    assert [new] == known.current()
    known.listed({}, "8")
    assert [] == known.current()


def test_what_we_have_deleted_is_gone_although_the_watch_still_has_it() -> None:
    known = KnownSlices()
    old, again = a_slice("a", "5"), a_slice("a", "9", uid="another")
    known.listed({"a": old}, "6")
    known.deleted("uid-a")
    assert [] == known.current()
    known.listed({"a": again}, "9")
    assert [again] == known.current()


def test_an_older_list_is_ignored_and_versions_that_are_no_numbers_are_not() -> None:
    known = KnownSlices()
    known.listed({}, "6")
    known.listed({"a": a_slice("a", "5")}, "5")
    assert [] == known.current()
    known = KnownSlices()
    one, two = a_slice("a", "x"), a_slice("a", "y")
    known.listed({"a": one}, "x")
    known.wrote(two)
    assert [one] == known.current()
    known.listed({"a": two}, "y")
    assert [two] == known.current()


def test_a_slice_is_intact_as_long_as_its_content_is_what_we_wrote_or_saw_first() -> None:
    known = KnownSlices()
    known.listed({"a": a_slice("a", "5", 3)}, "5")
    assert known.is_intact(a_slice("a", "9", 3))
    assert not known.is_intact(a_slice("a", "9", 4))
    known.listed({"a": a_slice("a", "6", 4)}, "6")
    assert not known.is_intact(a_slice("a", "6", 4))
    known.wrote(a_slice("a", "7", 5))
    assert known.is_intact(a_slice("a", "7", 5))
    known.listed({}, "8")
    assert known.is_intact(a_slice("a", "7", 5)), "it is gone: nobody has edited it"
