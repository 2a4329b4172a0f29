"""Checks a node and reports what is wrong for device plugins: ``deviceplugin doctor``.

It changes nothing, and has no checks for particular plugins: installed plugins add their own, which
use ``deviceplugin.checks``.
"""

from deviceplugin.checks import Finding, Node, Verdict
from deviceplugin.tools.doctor._check import Result, run
from deviceplugin.tools.doctor._cli import FORMAT, main
from deviceplugin.tools.doctor.checks import all_checks

__all__ = ["FORMAT", "Finding", "Node", "Result", "Verdict", "all_checks", "main", "run"]
