"""What the kubelet is offered: resources, their devices, the rules for both, their encoding."""
