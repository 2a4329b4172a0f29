"""The error of the benchmark."""


class BenchError(Exception):
    """Something could not be measured."""
