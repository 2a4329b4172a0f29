"""What the hardware's error registers do to a device's health, and when."""

from datetime import timedelta
from pathlib import Path

import pytest

import deviceplugin as dp
from deviceplugin.kit.health import SteadyHealth, Tolerance
from deviceplugin_fpga.health import OF_FME, OF_PORT, Fault, Key, Severity, judged
from fpga.trees import AFU, FpgaTree

ROOT = Path(__file__).parents[3]
KEY = ("fpga.intel.com/region-x", "dfl-fme.0")
FATAL = Fault("catfatal_errors", Severity.FATAL, "on fire")
ERROR = Fault("errors", Severity.ERROR, "port is stuck")
WARNING = Fault("nonfatal_errors", Severity.WARNING, "warm")


class Judge:
    """Judges one device after each look, with a clock of its own."""

    def __init__(self) -> None:
        self.now = 100.0
        self.steady = SteadyHealth[Key](Tolerance(patience=5, recovery=5), lambda: self.now)

    def __call__(self, *found: Fault, after: float = 0) -> dp.Health:
        self.now += after
        return judged(self.steady, KEY, found)


def health(plugin: dp.Plugin) -> dict[str, str]:
    """Return why devices are unhealthy, those that are well with an empty reason."""
    found = {device.id: device.health for device in plugin.discover()}
    return {one: "" if health else health.reason for one, health in found.items()}


# Registers.


@pytest.mark.parametrize(
    ("attribute", "value", "expected"),
    [
        ("catfatal_errors", "0x8", "dfl-fme.0: catfatal_errors 0x8"),
        ("fme_errors", "0x1", "dfl-fme.0: fme_errors 0x1"),
        ("pcie0_errors", "0x40", "dfl-fme.0: pcie0_errors 0x40"),
        ("pcie1_errors", "40", "dfl-fme.0: pcie1_errors 0x40"),
        ("nonfatal_errors", "0x3", ""),
        ("inject_errors", "0x7", ""),
        ("first_error", "0x7", ""),
        ("catfatal_errors", "0x0", ""),
        ("catfatal_errors", "", ""),
        ("fme_errors", "-1", "dfl-fme.0: fme_errors is '-1', which is not a number"),
        ("fme_errors", "f" * 5000, f"dfl-fme.0: fme_errors is '{'f' * 40}', which is not a number"),
        ("fme_errors", "\x00?", "dfl-fme.0: fme_errors is '\\x00?', which is not a number"),
    ],
)
def test_errors_of_an_fme_are_those_of_all_its_ports(
    tree: FpgaTree, attribute: str, value: str, expected: str
) -> None:
    ports = tree.simple(AFU, AFU)
    tree.set_error(ports[0].parent / "dfl-fme.0", attribute, value)
    assert {"dfl-port.0": expected, "dfl-port.1": expected} == health(tree.plugin("af"))
    assert {"dfl-fme.0": expected} == health(tree.plugin("region"))


def test_errors_of_a_port_are_its_own_and_those_of_its_region(any_tree: FpgaTree) -> None:
    ports = any_tree.simple(AFU, AFU)
    any_tree.set_error(ports[1], "errors", "0x20")
    any_tree.set_error(ports[1], "first_error", "0x20")
    any_tree.set_error(ports[1], "first_malformed_req", "0xabc")
    words = any_tree.words
    reason = f"{words.port}1: errors 0x20 (first_error 0x20, first_malformed_req 0xabc)"
    assert {f"{words.port}0": "", f"{words.port}1": reason} == health(any_tree.plugin("af"))
    assert {f"{words.fme}0": reason} == health(any_tree.plugin("regiondevel"))


def test_opaes_older_register_counts_too(any_tree: FpgaTree) -> None:
    (port,) = any_tree.simple(AFU)
    fme = f"{any_tree.words.fme}0"
    any_tree.set_error(port.parent / fme, "fme-errors/errors", "0x2")
    assert {fme: f"{fme}: fme-errors/errors 0x2"} == health(any_tree.plugin("region"))


def test_a_register_that_cannot_be_read_is_an_error(tree: FpgaTree) -> None:
    (port,) = tree.simple(AFU)
    (port / "errors/errors").mkdir(parents=True)
    (port / "errors/first_error").mkdir()
    assert {"dfl-port.0": f"{port}/errors/errors: Is a directory"} == health(tree.plugin("af"))
    (port / "errors/errors").rmdir()
    tree.set_error(port, "errors", "0x20")  # details that cannot be read are left out
    assert {"dfl-port.0": "dfl-port.0: errors 0x20"} == health(tree.plugin("af"))
    tree.set_error(port.parent / "dfl-fme.0", "catfatal_errors", "0x1")  # the worst comes first
    expected = "dfl-fme.0: catfatal_errors 0x1; dfl-port.0: errors 0x20"
    assert {"dfl-port.0": expected} == health(tree.plugin("af"))
    ignoring = tree.plugin("af", ignore_errors=("catfatal_errors", "errors"))
    assert {"dfl-port.0": ""} == health(ignoring)


def test_the_page_tells_the_severity_of_every_register() -> None:
    page = (ROOT / "plugins/fpga/README.md").read_text()
    for owner, attributes in (("port", OF_PORT), ("FME", OF_FME)):
        for attribute, severity in attributes.items():
            assert f"\n| {owner} | `{attribute}` | {severity.name.lower()} |" in page


# Verdicts.


def test_an_error_must_last_and_a_fatal_one_need_not() -> None:
    judge = Judge()
    assert judge()
    assert judge(ERROR)
    assert judge(ERROR, after=4.9)
    assert dp.Health.unhealthy("port is stuck") == judge(ERROR, after=0.1)
    assert dp.Health.unhealthy("on fire") == judge(FATAL)
    assert not judge()
    assert judge(after=5)
    assert dp.Health.unhealthy("on fire") == judge(FATAL)


def test_warnings_make_nobody_ill() -> None:
    judge = Judge()
    assert judge()
    assert dp.Health() == judge(WARNING)
    assert "degraded" == judge(WARNING, after=5).state
    judge(after=1)
    assert dp.Health() == judge(after=5)


def test_errors_have_as_long_to_last_as_the_settings_say(tree: FpgaTree) -> None:
    plugin = tree.plugin("af", error_patience=timedelta(seconds=7))
    assert Tolerance(patience=7, recovery=7) == plugin._steady._tolerance
