"""Tells the cluster which devices of a node are not well: ``deviceplugin events``.

A process of its own, so that a plugin needs no access to the cluster. It asks the plugin for its
``/devices``, and posts an Event for the node when health or registration has changed.
"""

from deviceplugin.tools._devices_page import NoAnswerError
from deviceplugin.tools.events._cli import main
from deviceplugin.tools.events._look import Fact, look
from deviceplugin.tools.events._notice import Notice, as_event
from deviceplugin.tools.events._posting import create_event
from deviceplugin.tools.events._sender import Sender
from deviceplugin.tools.events._watch import Watch

__all__ = [
    "Fact",
    "NoAnswerError",
    "Notice",
    "Sender",
    "Watch",
    "as_event",
    "create_event",
    "look",
    "main",
]
