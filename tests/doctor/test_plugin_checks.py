"""Checks that packages bring by entry points: found, run, and none of them harms the others."""

import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from deviceplugin.checks import Finding, Node, Verdict
from deviceplugin.tools.doctor._check import plugin_checks, run
from deviceplugin.tools.doctor._cli import main
from deviceplugin.tools.doctor.checks import all_checks
from hardware.healthy_node import write

GOOD = '''
from deviceplugin.checks import ok, warning


def look(node):
    """Lamps: whether they shine."""
    yield ok(node.at("/dev/lamp0"), "shines")
    yield warning("lamps", "one is out", means="it is dark.", do="change the bulb.")
'''
FIRST = "from deviceplugin.checks import ok\ndef look(node):\n    yield ok('lamps', 'first')\n"
Install = Callable[[str], None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Install a package whose check is in the module of this text."""
    site = tmp_path / "site"

    def put(code: str) -> None:
        write(site / "lamp_doctor.py", code)
        write(site / "lamp-1.2.dist-info/METADATA", "Name: lamp\nVersion: 1.2\n")
        entry = "[deviceplugin.doctor]\nlamp = lamp_doctor:look\n"
        write(site / "lamp-1.2.dist-info/entry_points.txt", entry)
        monkeypatch.syspath_prepend(site)

    yield put
    sys.modules.pop("lamp_doctor", None)


def findings(node: Node) -> list[Finding]:
    (check,) = [check for check in plugin_checks() if check.name == "lamp"]
    return [result.finding for result in run(node, [check])]


def test_an_installed_package_brings_its_check(
    install: Install, root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    install(GOOD)
    assert 0 == main([f"--root={root}", "--only=lamp", "--plugin=lamp", "-v"])
    assert [
        f"ok       lamp  {root}/dev/lamp0: shines",
        "warning  lamp  lamps: one is out",
        "         means: it is dark.",
        "         do:    change the bulb.",
        "",
        "0 failures, 1 warning, 0 unknown, 1 ok; nothing was changed",
    ] == capsys.readouterr().out.splitlines()


@pytest.mark.parametrize(
    ("code", "title"),
    [
        (GOOD, "Lamps: whether they shine"),
        ("import no_such_module", "cannot be imported: ModuleNotFoundError: "),
    ],
)
def test_its_title_is_the_first_line_of_its_docstring_between_kubelet_and_machine(
    install: Install, capsys: pytest.CaptureFixture[str], code: str, title: str
) -> None:
    assert "lamp" not in {check.name for check in all_checks()}
    install(code)
    assert 0 == main(["--list"])
    titles = dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines())
    assert titles["lamp"].startswith(title)
    names = [*titles]
    assert names.index("checkpoint") < names.index("lamp") < names.index("cdi")


def test_nothing_of_a_plugin_is_imported_for_another_check(install: Install, root: Path) -> None:
    install(GOOD)
    main([f"--root={root}", "--only=mode"])
    assert "lamp_doctor" not in sys.modules


@pytest.mark.parametrize(
    ("code", "text"),
    [
        ("import no_such_module", "No module named 'no_such_module'"),
        ("raise SystemExit(3)", "SystemExit: 3"),
        ("look", "NameError"),
        ("", "has no attribute 'look'"),
        ("look = 3", "'int' object is not callable"),
        ("def look(node): raise ValueError('broken')", "ValueError: broken (lamp_doctor.py:1)"),
        ("def look(node): raise KeyboardInterrupt", "KeyboardInterrupt"),
        ("def look(node): pass", "'NoneType' object is not iterable"),
        ("def look(node): return ['dark']", "yields str where a Finding belongs"),
        ("async def look(node): pass", "'coroutine' object is not iterable"),
    ],
)
@pytest.mark.filterwarnings("ignore:coroutine 'look' was never awaited")
def test_a_check_that_fails_is_a_finding(
    install: Install, root: Path, code: str, text: str
) -> None:
    install(code)
    (found,) = findings(Node.at_root(root))
    assert (Verdict.UNKNOWN, "lamp 1.2") == (found.verdict, found.looked_at)
    assert text in found.found
    assert "install lamp 1.2 with all its dependencies" in found.do


@pytest.mark.parametrize(
    ("error", "last"),
    [
        ("ValueError('broken')", "lamp 1.2: its check fails: ValueError: broken"),
        ("PermissionError(1, 'not permitted', '/d')", "/d: cannot be examined: not permitted"),
    ],
)
def test_what_a_check_found_before_it_failed_is_told(
    install: Install, root: Path, error: str, last: str
) -> None:
    install(f"{FIRST}    raise {error}\n")
    *first, found = findings(Node.at_root(root))
    assert f"{found.looked_at}: {found.found}".startswith(last)
    assert ("ValueError" in error) == bool(first)
    assert found.do.startswith("install lamp" if first else "run as root.")


def test_the_time_to_import_a_check_is_not_its_own(install: Install, root: Path) -> None:
    install(f"import threading\nthreading.Event().wait(1.2)\n{FIRST}")
    (found,) = findings(replace(Node.at_root(root), timeout=0.2))
    assert "first" == found.found


def test_a_check_that_hangs_is_given_up_and_the_others_are_made(
    install: Install, root: Path
) -> None:
    install("import threading\nover = threading.Event()\ndef look(node): over.wait()\n")
    checks = [check for check in all_checks() if check.name in {"lamp", "mode"}]
    found = [*run(replace(Node.at_root(root), timeout=0.05), checks)]
    sys.modules["lamp_doctor"].over.set()
    assert {"lamp", "mode"} == {result.check for result in found}
    (late,) = [result.finding for result in found if result.check == "lamp"]
    assert "its check takes too long" in late.found
    assert late.do.startswith("raise --timeout, or")


def test_a_check_that_never_ends_is_cut_off(install: Install, root: Path) -> None:
    install(f"import itertools\n{FIRST}    yield from itertools.repeat(ok('lamps', 'again'))\n")
    assert 1000 == len(findings(replace(Node.at_root(root), timeout=60)))
