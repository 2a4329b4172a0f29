"""Measures a device plugin from outside, whatever it is written in: ``deviceplugin bench``.

The plugin runs as a process of its own on a simulated kubelet, and is looked at as a node's
administrator would: by what the kubelet sees of it and by what ``/proc`` says.
"""

from deviceplugin.tools.bench._cli import main

__all__ = ["main"]
