"""What a container gets: device nodes, variables, mounts, CDI device names, MPS."""
