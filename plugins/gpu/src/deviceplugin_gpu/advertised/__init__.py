"""What the cluster sees: resources, devices, node labels, preferred allocations."""
