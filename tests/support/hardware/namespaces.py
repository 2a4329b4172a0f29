"""Commands in namespaces of their own, where this machine allows them."""

import subprocess

import pytest


def unshared(*options: str) -> list[str]:
    """Return what runs a command in namespaces of its own."""
    words = ["unshare", *options]
    try:
        done = subprocess.run([*words, "true"], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        pytest.skip("no unshare here")
    if done.returncode:
        pytest.skip(f"not allowed here: {done.stderr.strip()}")
    return words
