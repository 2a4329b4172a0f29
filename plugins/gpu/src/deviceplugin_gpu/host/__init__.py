"""Files of the node that the plugin reads and writes."""
