"""The kubelet's side of dynamic resource allocation (DRA): drivers, claims, health."""
