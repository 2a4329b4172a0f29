"""Looks at a node and says what is wrong for device plugins: ``deviceplugin doctor``.

It changes nothing. Plugins do not import it, and it imports no plugin.
"""

from deviceplugin.tools.doctor._cli import main
from deviceplugin.tools.doctor._finding import Finding, Verdict
from deviceplugin.tools.doctor._node import Node
from deviceplugin.tools.doctor._report import FORMAT
from deviceplugin.tools.doctor._runner import Result, run
from deviceplugin.tools.doctor.checks import CHECKS

__all__ = ["CHECKS", "FORMAT", "Finding", "Node", "Result", "Verdict", "main", "run"]
