"""What is skipped is counted by cause, and can be asked for."""

import io
import os
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest

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
    """Run pytest in this process, with nothing of the outer one."""
    (folder / "test_it.py").write_text(TESTS)
    off = [f"-pno:{name}" for name in ("timeout", "randomly", "xdist", "cacheprovider")]
    options = ["-q", "-s", "-c", os.devnull, "-p", "needs", "--import-mode=importlib"]
    said = io.StringIO()
    with redirect_stdout(said), redirect_stderr(said):
        status = pytest.main([*off, *options, *words, str(folder)])
    return status, said.getvalue().splitlines()


def test_skips_are_counted_by_cause_and_a_failure_is_named_at_once(tmp_path: Path) -> None:
    _, lines = run(tmp_path)
    for cause in ("helm", "apiserver", "controllers"):
        assert f"    1 {cause:12} {needs.CAUSES[cause].remedy}" in lines
    assert f"    1 {needs.OTHERS:12} nothing that could be installed" in lines
    failures = next(number for number, line in enumerate(lines) if " FAILURES " in line)
    assert any(line.endswith("test_it.py::test_a_fault") for line in lines[:failures])


def test_what_is_needed_fails_where_it_is_missing(tmp_path: Path) -> None:
    status, lines = run(tmp_path, "--need=helm,cc", "-k", "not fault")
    assert 1 == status
    remedy = needs.CAUSES["helm"].remedy
    assert f"no helm; --need=helm: {remedy}" in "\n".join(lines)
    assert "3 skipped, 1 deselected, 1 error" in lines[-1]
    status, lines = run(tmp_path, "--need=hlem")
    assert 4 == status
    assert "--need: hlem: name some of cluster, containerd" in "\n".join(lines)
