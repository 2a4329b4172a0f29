"""Lists the devices of all nodes of a cluster: ``deviceplugin fleet``."""

from deviceplugin.tools.fleet._cli import main
from deviceplugin.tools.fleet._fleet import Fleet, Row, Sum
from deviceplugin.tools.fleet._report import FORMAT

__all__ = ["FORMAT", "Fleet", "Row", "Sum", "main"]
