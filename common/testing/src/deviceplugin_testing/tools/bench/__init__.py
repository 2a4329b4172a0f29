"""Measures a device plugin in any language from outside: ``deviceplugin bench``.

The plugin runs as its own process on a simulated kubelet. It is measured as a node's administrator
could: by what the kubelet sees, and by ``/proc``.
"""

from deviceplugin_testing.tools.bench._cli import main

__all__ = ["main"]
