"""What the rest stands on: an author's code contained, file events, waiting, back-off, gRPC."""
