"""NVML: its library, its calls and events, and all GPUs as it lists them."""
