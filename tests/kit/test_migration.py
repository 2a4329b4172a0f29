"""The account of every key of an input, and what a workload says of it."""

import pytest

import deviceplugin as dp
from deviceplugin.kit.migration import Account, Setting, Workload, flags

VALUES = {"a": {"b": 1, "c": None}, "env": [{"name": "MODE", "value": "x"}, {"name": "?"}], "d": {}}


def account(content: object = VALUES) -> Account:
    return Account([("f.yaml", content)])


def test_what_nothing_has_become_of_is_left() -> None:
    one = account()
    one.take((0, "env", 0))
    assert [(0, "a"), (0, "env", 1)] == one.left_paths()
    one.drop((0, "a", "b"), "why")
    one.drop((0, "a", "b"), "another reason")
    one.drop((0, "d"), "is empty, and so absent")
    assert [((0, "a", "b"), "why")] == one.dropped()
    assert one.get((0, "env", 5)) is None
    assert ["f.yaml: env[1]: not understood"] == one.left()


def test_what_is_dropped_is_listed_once_and_what_is_taken_is_not_dropped_any_more() -> None:
    one = account()
    workload = Workload(place="p", values=VALUES, account=one)
    workload.drop("a reason", "a", "b")
    assert [((0, "a", "b"), "a reason")] == one.dropped()
    one.drop((0, "a"), "why")
    assert ([((0, "a"), "why")], []) == (one.dropped(), one.dropped((0, "env")))
    taken = account()
    taken.drop((0, "a"), "why")
    taken.take((0, "a"))
    assert [] == taken.dropped()


def test_a_key_that_is_wrong_is_left_below_what_is_dropped() -> None:
    one = account()
    one.drop((0, "a"), "why")
    one.doubt((0, "a", "b"))
    one.doubt((0, "env", 1, "name"))
    assert [(0, "env", 0), (0, "env", 1, "name"), (0, "a", "b")] == one.left_paths()


def test_keys_that_were_asked_for_are_suggested() -> None:
    one = account({"modus": 1, "env": [{"name": "MODDE"}, {"name": "a b"}, 5, {}], "zz": 1})
    one.take((0, "env", 3))
    one.get((0, "mode"))
    one.get((0, "env", "MODE"))
    assert one.get(()) is not None
    assert [
        "f.yaml: modus: not understood: did you mean 'mode'?",
        "f.yaml: env[MODDE]: not understood: did you mean 'MODE'?",
        "f.yaml: env[1]: not understood",
        "f.yaml: env[2]: not understood",
        "f.yaml: zz: not understood",
    ] == one.left()


def test_of_very_many_keys_some_are_named_and_long_and_odd_ones_cut_and_escaped() -> None:
    *named, last = account({f"k{index}": 1 for index in range(150)}).left()
    assert 100 == len(named)
    assert "50 more keys: not understood" == last
    assert "'a\\nb'[0]" == account().name((0, "a\nb", 0))
    assert len(str(Setting("p", "x" * 5000).wrong("a number"))) < 500


def test_a_variable_that_was_asked_for_is_suggested() -> None:
    workload = Workload(
        place="p",
        variables={"MODE": Setting("p: MODE", "x", (0, "env", 0))},
        account=account({"env": [{"name": "MODE"}, {"name": "LEVL"}]}),
    )
    found = workload.variable("MODE")
    assert found is not None
    assert "x" == found.value
    assert workload.variable("LEVEL") is None
    workload.drop_variable("OTHER", "is not there")
    workload.drop_variable("MODE", "is not needed")
    assert ["f.yaml: env[LEVL]: not understood: did you mean 'LEVEL'?"] == workload.account.left()


def test_flags_of_what_a_shell_starts_are_refused() -> None:
    def read(*arguments: str) -> list[str]:
        workload = Workload(place="p", shell="/bin/sh", arguments=arguments)
        return [name for name, _ in flags(workload, [], ["a"])]

    for odd in (["-c"], ["-c", "x; y"], ["-c", "x", "y"], ["x"], []):
        with pytest.raises(dp.ConfigError, match="p: command: '/bin/sh' is not a plugin"):
            read(*odd)
    assert ["a"] == read("-c", "exec x --a")
