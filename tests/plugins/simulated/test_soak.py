"""Ten thousand devices that fail at random; the whole minute is in ``simulated/soak.py``."""

import pytest

from simulated.soak import main, soak


def test_the_kubelet_has_what_the_script_says_after_many_faults() -> None:
    outcome = soak(10_000, seconds=3, seed=7)
    assert (10_000, 0) == (outcome.devices, outcome.differences)
    assert 500 < outcome.events
    assert 1000 < outcome.troubled < 2000
    assert 1 < outcome.lists or outcome.last_fault < outcome.first_list
    # As much as some thousand of its devices, not as the lists that were sent.
    assert max(outcome.memory_mib) - outcome.memory_mib[0] < 20


def test_the_script_prints_what_it_saw(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["soak", "--seconds", "1", "--devices", "1000", "--every", "20ms"]
    monkeypatch.setattr("sys.argv", words)
    assert 0 == main()
    assert "differences   0\n" in capsys.readouterr().out
