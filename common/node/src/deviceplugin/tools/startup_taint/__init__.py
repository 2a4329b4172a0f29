"""Removes a node's startup taint once its devices are there: ``deviceplugin startup-taint``.

A process of its own, for all nodes of a plugin or for one: it asks the plugin of each node whether
its devices are registered, and the API server whether the node shows them. Off unless it is
deployed.
"""
