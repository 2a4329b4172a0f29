"""The kind ``DevicePlugin``: its schema, and what an object of it asks for."""
