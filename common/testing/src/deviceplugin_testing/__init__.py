"""What an author of plugins installs: a simulated kubelet and what tests plugins with it."""
