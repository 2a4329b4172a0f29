"""Lists the devices of all nodes of a cluster: ``deviceplugin fleet``."""
