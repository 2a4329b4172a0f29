"""A Kubernetes operator for device plugins: ``DevicePlugin`` objects become DaemonSets.

No module has an underscore, because the whole application is private.
"""
