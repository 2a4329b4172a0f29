"""A Kubernetes operator for device plugins: ``DevicePlugin`` objects become DaemonSets.

What is private to it has no underscore: it is an application, private as a whole.
"""
