"""What the rest builds on: containing a plugin's code, file events, waiting, back-off, gRPC."""
