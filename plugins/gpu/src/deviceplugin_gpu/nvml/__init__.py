"""NVML: its library, its calls and events, and the GPUs that it lists."""
