"""What the operator knows of the cluster: objects, nodes, and watches that miss changes."""
