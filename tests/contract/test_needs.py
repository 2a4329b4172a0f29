"""What is skipped is counted by cause, and can be asked for."""

import os
import subprocess
import sys
from pathlib import Path

import needs

TESTS = """
import pytest

@pytest.mark.skip(reason="no helm")
def test_a_chart(): ...

@pytest.mark.skip(reason="no KUBE_APISERVER and no ETCD")
def test_a_policy(): ...

@pytest.mark.skip(reason="no KUBE_APISERVER and no KUBE_SCHEDULER")
def test_a_node(): ...

@pytest.mark.skip(reason="the machine has no IPv6")
def test_an_address(): ...

def test_a_fault(): assert False
"""


def run(folder: Path, *words: str) -> tuple[int, list[str]]:
    (folder / "test_it.py").write_text(TESTS)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-c", os.devnull, "-p", "needs", *words, folder],
        env={**os.environ, "PYTHONPATH": str(Path(needs.__file__).parent)},
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, (done.stdout + done.stderr).splitlines()


def test_skips_are_counted_by_cause_with_what_to_do(tmp_path: Path) -> None:
    _, lines = run(tmp_path)
    for cause in ("helm", "apiserver", "controllers"):
        assert f"    1 {cause:12} {needs.CAUSES[cause].remedy}" in lines
    assert f"    1 {needs.OTHERS:12} nothing that could be installed" in lines


def test_what_is_needed_fails_where_it_is_missing(tmp_path: Path) -> None:
    status, lines = run(tmp_path, "--need=helm,cc", "--deselect=test_it.py::test_a_fault")
    assert 1 == status
    remedy = needs.CAUSES["helm"].remedy
    assert f"no helm; --need=helm: {remedy}" in "\n".join(lines)
    assert "3 skipped, 1 deselected, 1 error" in lines[-1]


def test_an_unknown_need_is_refused(tmp_path: Path) -> None:
    status, lines = run(tmp_path, "--need=hlem")
    assert 4 == status
    assert any("--need: hlem: name some of cluster, containerd" in line for line in lines)


def test_the_name_of_a_test_is_printed_when_it_fails(tmp_path: Path) -> None:
    _, lines = run(tmp_path, "-n", "2")
    failures = next(number for number, line in enumerate(lines) if " FAILURES " in line)
    assert "FAILED test_it.py::test_a_fault" in lines[:failures]
