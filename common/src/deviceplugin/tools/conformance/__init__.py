"""``deviceplugin conformance``: check any device plugin."""

from deviceplugin.tools.conformance._cli import main

__all__ = ["main"]
