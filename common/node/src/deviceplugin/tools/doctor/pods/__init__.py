"""Why a pod that asks for devices waits, was rejected, or runs without them.

``deviceplugin doctor --pod NAMESPACE/NAME``. It asks the API server, and needs no access to a node.
"""

from deviceplugin.tools.doctor.pods._api import api_server
from deviceplugin.tools.doctor.pods._pod import look

__all__ = ["api_server", "look"]
