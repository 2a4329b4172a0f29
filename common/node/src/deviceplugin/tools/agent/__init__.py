"""One process for several plugins: the command ``device-plugins``.

Each plugin has a section of the configuration file (``_sections``) and is made by itself
(``_maker``): a section that is wrong, or a plugin that cannot be made, keeps no other from running.
Everything else is a plugin's process as always.
"""
