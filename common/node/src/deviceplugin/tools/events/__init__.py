"""Reports a node's unhealthy devices as Events: ``deviceplugin events``.

It is a separate process, so that a plugin needs no access to the cluster. It reads ``/devices`` of
the plugin, and creates an Event for the node when health or registration has changed.
"""

from deviceplugin.tools._devices_page import NoAnswerError
from deviceplugin.tools.events._cli import main
from deviceplugin.tools.events._notice import Fact, Notice, as_event, read_facts
from deviceplugin.tools.events._watch import Sender, Watch, create_event

__all__ = [
    "Fact",
    "NoAnswerError",
    "Notice",
    "Sender",
    "Watch",
    "as_event",
    "create_event",
    "main",
    "read_facts",
]
