"""Evicts pods whose device has been unhealthy for too long: ``deviceplugin evict``.

It is a process of its own, for all nodes of a plugin or for one. It asks the plugin of each node
which devices are unhealthy and which pods hold them, and it asks the API server to evict those
pods. It is not deployed by default, and without ``--evict`` it only logs what it would do.
"""
