"""Which GPUs there are now, through NVML or without it, and why there are none."""
