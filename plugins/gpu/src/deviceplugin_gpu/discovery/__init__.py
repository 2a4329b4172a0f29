"""Which GPUs exist now, through NVML or without it, and why there are none."""
