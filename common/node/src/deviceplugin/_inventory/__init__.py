"""What the kubelet is offered: resources and devices, the rules for them, and their encoding."""
