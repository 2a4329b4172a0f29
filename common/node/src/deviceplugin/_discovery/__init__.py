"""From ``discover()`` to the devices of a resource: triggers, checks, and what is kept."""
