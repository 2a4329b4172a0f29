"""Reports a node's unhealthy devices as Events: ``deviceplugin events``.

It is a separate process, so that a plugin needs no access to the cluster. It reads ``/devices`` of
the plugin, and creates an Event for the node when health or registration has changed.
"""
