"""What outlives a kubelet process: the machine, its configuration, the cluster, the clock."""
