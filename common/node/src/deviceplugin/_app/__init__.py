"""The process of a plugin: command line, signals, threads, and everything that runs in it."""
