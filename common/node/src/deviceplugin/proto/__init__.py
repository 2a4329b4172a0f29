"""The kubelet's protocols and the API server's objects: ``.proto`` files and generated code."""
