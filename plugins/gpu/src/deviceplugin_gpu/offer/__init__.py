"""What the cluster is told: resources, devices, node labels, preferred allocations."""
