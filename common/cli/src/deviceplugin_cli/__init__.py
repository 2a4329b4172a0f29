"""What an administrator has on a laptop: the fleet of a cluster, and the way from other plugins."""
