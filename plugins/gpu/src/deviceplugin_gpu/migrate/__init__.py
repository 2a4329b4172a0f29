"""What ``deviceplugin migrate`` knows of NVIDIA's plugin, of its chart and of its operator."""

from deviceplugin_gpu.migrate.result import migrate

__all__ = ["migrate"]
