"""Plant faults in the product, one at a time, and say which the tests notice.

    .venv/bin/python build/faults.py --record [TESTS]       which test runs which line: half an hour
    .venv/bin/python build/faults.py [--count 200] [--seed 1] [--quick] [--of GLOB]

A fault is drawn at random: a comparison turned round, a number that is one more, a statement left
out. It is planted in a copy of the package, which stands before the installed one, and the tests
that run its line are run until one fails: those that run the fewest lines first. A test that fails
without the fault too has noticed nothing. --quick leaves out the tests that are marked slow.

To see what a change of some tests costs, record those before and after it: with one seed, the same
faults are drawn wherever the product is the same.
"""

import argparse
import ast
import hashlib
import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from fnmatch import fnmatch
from functools import cache
from itertools import accumulate
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from coverage import CoverageData

ROOT: Final = Path(__file__).parents[1]
RECORD: Final = ROOT / "dist/faults"
MOST: Final = 60
"""How many test functions are run for a fault."""
PATIENCE: Final = 900.0
"""Seconds for the tests of a fault; what is late has been noticed."""
_PAIRS: Final = "== !=, < <=, > >=, in not_in, is is_not, and or, + -, * //"
TURNED: Final = {
    one.replace("_", " "): other.replace("_", " ")
    for pair in _PAIRS.split(", ")
    for one, other in (pair.split(), pair.split()[::-1])
}
"""What stands between two operands, and what takes its place."""


@dataclass(frozen=True)
class Fault:
    """What is put in place of a part of a file."""

    path: Path
    line: int
    begin: int
    was: str
    """What begins there, in bytes from the start of the file."""
    now: str

    def __str__(self) -> str:
        return f"{self.path.relative_to(ROOT)}:{self.line}: {self.was!r} -> {self.now!r}"

    def planted(self) -> bytes:
        """Return the whole file with the fault."""
        text = self.path.read_bytes()
        after = text[self.begin + len(self.was.encode()) :]
        return text[: self.begin] + self.now.encode() + after


def operands(node: ast.expr) -> tuple[ast.expr, ast.expr] | None:
    """Return what stands left and right of the operator of ``node``, if it has one."""
    match node:
        case ast.Compare(left=left, comparators=[right]) | ast.BinOp(left=left, right=right):
            return left, right
        case ast.BoolOp(values=[left, right, *_]):
            return left, right
    return None


def in_place_of(node: ast.expr | ast.stmt) -> str | None:
    """Return what is put in place of the whole of ``node``; None: it is left as it is."""
    match node:
        case ast.UnaryOp(op=ast.Not()):
            return f"bool({ast.unparse(node.operand)})"
        case ast.Constant(value=bool(value)):
            return str(not value)
        case ast.Constant(value=int(value) | float(value)):
            return str(value + 1)
        case ast.Return(value=ast.expr()):
            return "return None"
        case ast.Expr(value=ast.Call()) | ast.AugAssign() | ast.Raise():
            return "pass"
    return None


class Source:
    """A file of the product."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._text = path.read_bytes()
        sizes = map(len, self._text.splitlines(keepends=True))
        self._starts = [0, *accumulate(sizes)]

    def faults(self, lines: set[int]) -> Iterator[Fault]:
        """Yield all faults that can be planted in ``lines``."""
        for node in ast.walk(ast.parse(self._text)):
            if isinstance(node, ast.expr | ast.stmt) and node.lineno in lines:
                yield from self._of(node)

    def _of(self, node: ast.expr | ast.stmt) -> Iterator[Fault]:
        begin, end = self._span(node)
        if now := in_place_of(node):
            yield self._fault(node.lineno, begin, end, now)
        if isinstance(node, ast.expr) and (sides := operands(node)):
            (_, begin), (end, _) = map(self._span, sides)
            if now := TURNED.get(self._text[begin:end].decode().strip()):
                yield self._fault(node.lineno, begin, end, f" {now} ")

    def _span(self, node: ast.expr | ast.stmt) -> tuple[int, int]:
        end = self._starts[(node.end_lineno or node.lineno) - 1] + (node.end_col_offset or 0)
        return self._starts[node.lineno - 1] + node.col_offset, end

    def _fault(self, line: int, begin: int, end: int, now: str) -> Fault:
        return Fault(self._path, line, begin, self._text[begin:end].decode(), now)


def tests_of_lines() -> dict[Path, dict[int, list[str]]]:
    """Return which tests run which line of which file, by the names that pytest has for them."""
    data = CoverageData(str(RECORD / ".coverage"))
    data.read()
    found: dict[Path, dict[int, list[str]]] = {}
    for path in sorted(map(Path, data.measured_files())):
        if path.suffix == ".py" and path.exists():
            contexts = data.contexts_by_lineno(str(path)).items()
            named = {line: [*filter(None, map(_test, given))] for line, given in contexts}
            found[path] = {line: names for line, names in named.items() if names}
    return found


@cache
def _test(context: str) -> str | None:
    module, _, function = context.rpartition(".")
    path = module.replace(".", "/") + ".py"
    return f"{path}::{function}" if (ROOT / path).exists() else None


def record(tests: Sequence[str]) -> int:
    """Run ``tests``, or all, and note which lines each runs."""
    RECORD.mkdir(parents=True, exist_ok=True)
    options = RECORD / "coverage.toml"
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    noted = '[tool.coverage.run]\ndynamic_context = "test_function"'
    options.write_text(text.replace("[tool.coverage.run]", noted), encoding="utf-8")
    coverage = [sys.executable, "-m", "coverage"]
    environment = {**os.environ, "COVERAGE_FILE": str(RECORD / ".coverage")}
    run = [*coverage, "run", f"--rcfile={options}", "-m", "pytest", "-n", "auto", "-q", *tests]
    subprocess.run(run, cwd=ROOT, env=environment, check=False)
    combine = [*coverage, "combine", "--quiet", f"--rcfile={options}"]
    return subprocess.run(combine, cwd=ROOT, env=environment, check=False).returncode


def failing(source: Path, tests: Sequence[str], *, quick: bool) -> str | None:
    """Return the first of ``tests`` that fails with the package in ``source``; None: none does."""
    words = ["-x", "-q", "-n", "0", "-p", "no:randomly", "-p", "no:cacheprovider", "--tb=no"]
    words += ["-m", "not slow"] if quick else []
    environment = {**os.environ, "PYTHONPATH": str(source), "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        done = subprocess.run(
            [sys.executable, "-m", "pytest", *words, *tests],
            cwd=ROOT,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE,
        )
    except subprocess.TimeoutExpired:
        return "(late)"
    if done.returncode in {0, 5}:  # 5: all are slow
        return None
    told = [one for one in done.stdout.splitlines() if one.startswith(("FAILED ", "ERROR "))]
    named = [one.partition(" ")[2].partition(" - ")[0] for one in told]  # an id may have blanks
    return named[0] if named else "(pytest itself)"


def noticed(fault: Fault, tests: Sequence[str], *, quick: bool) -> str | None:
    """Return which of ``tests`` notices ``fault``."""
    src = next(one for one in fault.path.parents if one.name == "src")
    with TemporaryDirectory() as folder:
        clean, faulty = Path(folder, "clean"), Path(folder, "faulty")
        for one in (clean, faulty):
            shutil.copytree(src, one, ignore=shutil.ignore_patterns("__pycache__"))
        (faulty / fault.path.relative_to(src)).write_bytes(fault.planted())
        left = list(tests)
        while left and (test := failing(faulty, left, quick=quick)):
            if "::" not in test or not failing(clean, [test], quick=quick):
                return test
            left.remove(test.partition("[")[0])
        return None


def chance(text: str) -> bytes:
    """Return what orders texts at random, and the same in each run."""
    return hashlib.sha256(text.encode()).digest()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--record", nargs="*", metavar="TESTS")
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--of", default="*", metavar="GLOB", help="only in these files")
    options = parser.parse_args(arguments)
    if options.record is not None:
        return record(options.record)
    tests = tests_of_lines()
    runs = Counter(name for lines in tests.values() for names in lines.values() for name in names)
    within = {
        path: lines
        for path, lines in tests.items()
        if fnmatch(str(path.relative_to(ROOT)), options.of)
    }
    every = [one for path, lines in within.items() for one in Source(path).faults(set(lines))]
    drawn = sorted(every, key=lambda fault: chance(f"{options.seed} {fault}"))[: options.count]

    def judge(fault: Fault) -> bool:
        covering = sorted(tests[fault.path][fault.line], key=runs.__getitem__)[:MOST]
        test = noticed(fault, covering, quick=options.quick)
        print(f"{fault}\n    {test or f'NOT NOTICED by {len(covering)} tests'}", flush=True)
        return test is not None

    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        seen = sum(pool.map(judge, drawn))
    print(f"{seen} of {len(drawn)} faults were noticed ({len(every)} could be planted)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
