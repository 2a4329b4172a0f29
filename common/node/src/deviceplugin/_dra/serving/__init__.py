"""The sockets and services that the kubelet calls. Nothing else here knows of gRPC."""
