"""``deviceplugin kubelet``: a simulated kubelet to try plugins on."""
