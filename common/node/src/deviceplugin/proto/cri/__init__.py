"""What the doctor asks a container runtime for: messages (generated)."""
