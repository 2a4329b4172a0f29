"""From ``discover()`` to the devices of a resource: when, what is found, what is kept."""
