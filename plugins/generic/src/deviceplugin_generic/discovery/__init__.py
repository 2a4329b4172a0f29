"""What entries match on this node: devices with their ids, their health and their allocation."""
