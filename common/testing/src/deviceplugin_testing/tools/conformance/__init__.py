"""``deviceplugin conformance``: check any device plugin."""

from deviceplugin_testing.tools.conformance._cli import main

__all__ = ["main"]
