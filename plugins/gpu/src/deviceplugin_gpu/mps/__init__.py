"""Sharing by CUDA MPS: the daemons that are wanted, and ``gpu-mps-daemon``, which runs them."""
