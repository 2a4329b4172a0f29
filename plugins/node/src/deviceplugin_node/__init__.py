"""All plugins of a node in one process: this package brings them, and ``device-plugins`` runs them.

It has no code. Its command is the framework's, which runs the plugins that have a section in the
configuration file.
"""
