"""What an autoscaler must know of a node group that has no node."""
