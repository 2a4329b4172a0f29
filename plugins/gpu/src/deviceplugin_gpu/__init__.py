"""A Kubernetes device plugin for NVIDIA GPUs."""

from deviceplugin_gpu._main import main

__all__ = ["main"]
