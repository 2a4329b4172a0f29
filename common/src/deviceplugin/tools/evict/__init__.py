"""Evicts pods whose device has been unhealthy for too long: ``deviceplugin evict``.

A process of its own, beside a plugin: it asks the plugin which devices are unhealthy and which pods
hold them, and the API server to evict those pods. Off unless it is deployed, and then it says what
it would do until it is told to do it.
"""

from deviceplugin.tools.evict._budget import Budget
from deviceplugin.tools.evict._cli import main
from deviceplugin.tools.evict._evictor import Evictor
from deviceplugin.tools.evict._patience import Patience, Suspect
from deviceplugin.tools.evict._pods import Pods

__all__ = ["Budget", "Evictor", "Patience", "Pods", "Suspect", "main"]
