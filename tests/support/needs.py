"""A plugin of pytest: what tests lack on this machine, by cause, and how to have it.

``--need=helm,containerd`` makes their absence an error. The name of a test is printed as soon as it
fails, because a run with many workers has no names before its end.
"""

import re
from collections import Counter
from collections.abc import Generator
from typing import Final, NamedTuple

import pytest


class Cause(NamedTuple):
    """Why tests are skipped."""

    reason: str
    """What their reasons contain, as a regular expression."""
    remedy: str
    """What to do to have them run."""


_KUBECTL: Final = ".venv/bin/python build/kubectl.py dist/kubectl, then PATH with what it prints"
_PROGRAMS: Final = "set the variable to the program's path"
CAUSES: Final = {
    "cluster": Cause("needs a cluster", ".venv/bin/pytest -n 0 e2e --cluster, with KUBECONFIG"),
    "containerd": Cause("containerd|containers in this", "apt-get install containerd runc"),
    "controllers": Cause("KUBE_(CONTROLLER|SCHEDULER)", _PROGRAMS),
    "apiserver": Cause("KUBE_APISERVER|ETCD", _PROGRAMS),
    "helm": Cause(r"\bhelm", _KUBECTL),
    "kubectl": Cause("kubectl|kustomize", _KUBECTL),
    "kubernetes": Cause("K8S_SRC", "K8S_SRC=sources of Kubernetes, and Go"),
    "peers": Cause("_(PLUGIN|GFD|CTK|CDI_HOOK|RUNTIME) (does not|is not)", _PROGRAMS),
    "images": Cause(r"\bimages?\b", "make images, then .venv/bin/pytest -n 0 -m images"),
    "prometheus": Cause("promtool|prometheus", "apt-get install prometheus"),
    "registry": Cause("docker-registry|skopeo", "apt-get install docker-registry skopeo"),
    "chromium": Cause("chromium", "apt-get install chromium"),
    "cc": Cause("C compiler", "apt-get install gcc"),
    "root": Cause("needs? root|unshare|can be made here|not allowed here", "run them as root"),
}
"""By the names that ``--need`` takes. The first that fits counts."""
OTHERS: Final = "this machine"


def cause_of(reason: str) -> str:
    """Return the name of the cause of a skip; ``OTHERS`` for what nobody can install."""
    return next((name for name, one in CAUSES.items() if re.search(one.reason, reason)), OTHERS)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.getgroup("deviceplugin", "tests of deviceplugin").addoption(
        "--need",
        default="",
        metavar="CAUSE,...",
        help=f"fail in place of skipping for want of these: {', '.join(CAUSES)}",
    )


def pytest_configure(config: pytest.Config) -> None:
    needed = [one for one in config.getoption("need").split(",") if one]
    if unknown := sorted({*needed} - {*CAUSES}):
        raise pytest.UsageError(f"--need: {', '.join(unknown)}: name some of {', '.join(CAUSES)}")


def _judge(report: pytest.CollectReport | pytest.TestReport, config: pytest.Config) -> None:
    if report.skipped and isinstance(report.longrepr, tuple) and not hasattr(report, "wasxfail"):
        cause = cause_of(report.longrepr[2])
        if cause in config.getoption("need").split(","):
            report.outcome = "failed"
            report.longrepr = f"{report.longrepr[2]}; --need={cause}: {CAUSES[cause].remedy}"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    _judge(report, item.config)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    _judge(report, collector.config)
    return report


@pytest.hookimpl(tryfirst=True)
def pytest_report_teststatus(report: pytest.TestReport, config: pytest.Config) -> None:
    terminal = config.pluginmanager.get_plugin("terminalreporter")
    if report.failed and terminal and config.get_verbosity() <= 0:
        terminal.write_line(f"\nFAILED {report.nodeid}", red=True)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    reports = terminalreporter.stats.get("skipped", [])
    reasons = [one.longrepr[2] for one in reports if isinstance(one.longrepr, tuple)]
    counted = Counter(cause_of(reason) for reason in reasons)
    if counted:
        terminalreporter.section("skipped, by what is missing")
    for cause, count in counted.most_common():
        said = CAUSES[cause].remedy if cause in CAUSES else "nothing that could be installed"
        terminalreporter.write_line(f"{count:5} {cause:12} {said}")
