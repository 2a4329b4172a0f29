"""What is said of how plugins name their sockets."""

import sys
from pathlib import Path

import pytest

from deviceplugin_testing.conformance import CHECKS, Limits, Subject, Trial, Verdict, run
from deviceplugin_testing.conformance.checks import _registration

ROOT = Path(__file__).parents[2]
NAMES = ("registration.serves-first", "registration.endpoint")


@pytest.mark.parametrize(
    ("endpoint", "bare"),
    [
        ("example.com_gopher-9623a8.sock", True),
        ("gdp-c3F1YXQuYWkvZnVzZQ==-1763794494.sock", True),
        ("a b: ü+,;&@!'().sock", True),
        ("", False),
        (".", False),
        ("..", False),
        ("kubelet.sock", False),
        ("./a.sock", False),
        ("a.sock/", False),
        ("/var/lib/kubelet/device-plugins/a.sock", False),
        ("a?.sock", False),
        ("a#.sock", False),
        ("a%41.sock", False),
        ("a%.sock", False),
    ],
)
def test_a_bare_name_is_one_that_the_kubelet_dials(endpoint: str, *, bare: bool) -> None:
    assert bare == _registration._is_bare(endpoint)


@pytest.mark.parametrize(
    ("plugin", "verdicts"),
    [
        ("NamesItsSocketOddly", [Verdict.PASS, Verdict.PASS]),
        ("EndpointWithPath", [Verdict.PASS, Verdict.FAIL]),
        ("EndpointElsewhere", [Verdict.NOT_APPLICABLE, Verdict.FAIL]),
    ],
)
def test_what_an_endpoint_is_blamed_for(
    plugin: str, verdicts: list[Verdict], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    module = "tests.conformance.bad_plugins"
    command = [sys.executable, "-m", module, f"registration.{plugin}", "{devices_dir}"]
    checks = [check for check in CHECKS if check.id in NAMES]
    with Trial(Subject(command=command), Limits(start=30), seed=1) as trial:
        assert verdicts == [result.verdict for result in run(trial, checks, lambda _: None)]
