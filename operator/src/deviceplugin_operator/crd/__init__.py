"""The custom resource ``DevicePlugin``: its definition, and what an object of it asks for."""
