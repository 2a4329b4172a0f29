"""What installs charts, and the charts whose values are read."""
