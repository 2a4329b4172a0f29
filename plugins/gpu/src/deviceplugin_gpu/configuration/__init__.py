"""The settings of the GPU plugin, and its configuration file."""
