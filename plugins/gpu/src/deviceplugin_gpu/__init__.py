"""A Kubernetes device plugin for NVIDIA GPUs."""

from deviceplugin_gpu.command_line import main

__all__ = ["main"]
