"""The kubelet's device manager: which plugin has which resource, and who got which device."""
