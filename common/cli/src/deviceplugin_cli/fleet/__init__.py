"""Lists the devices of all nodes of a cluster: ``deviceplugin fleet``."""

from deviceplugin_cli.fleet._cli import main
from deviceplugin_cli.fleet._fleet import FORMAT, Fleet, Row, Sum

__all__ = ["FORMAT", "Fleet", "Row", "Sum", "main"]
