"""From ``discover()`` to the devices of a resource: when to look, what is found, what is kept."""
