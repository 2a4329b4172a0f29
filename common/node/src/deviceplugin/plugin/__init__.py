"""The class that a plugin author writes."""

from deviceplugin.plugin._capabilities import Capabilities, overrides
from deviceplugin.plugin._plugin import Holder, Plugin, Usage

__all__ = ["Capabilities", "Holder", "Plugin", "Usage", "overrides"]
