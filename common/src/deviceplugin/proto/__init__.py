"""The kubelet's protocols: the ``.proto`` files and the code that is generated from them."""
