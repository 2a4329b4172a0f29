"""What an object becomes: DaemonSets, the nodes that they cover, and the next step to get there."""
