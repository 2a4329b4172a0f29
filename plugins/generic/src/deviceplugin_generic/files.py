"""Reading files of sysfs: what is not there, or cannot be read, is empty."""

import os
import posixpath


def node_name(path: str) -> str:
    """Return the name below ``/dev`` of the node of the device in a directory."""
    lines = read(f"{path}/uevent").splitlines()
    name = next((line[8:] for line in lines if line.startswith("DEVNAME=")), "")
    return name.removeprefix("/dev/")


def read(path: str) -> str:
    """Return the text of a file."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:  # noqa: PTH123 - thousands
            return file.read()
    except OSError:
        return ""


def link(path: str) -> str:
    """Return the last part of what a link leads to."""
    try:
        return posixpath.basename(os.readlink(path))  # noqa: PTH115 - thousands of these
    except OSError:
        return ""


def names(path: str) -> list[str]:
    """Return the names in a directory."""
    try:
        return os.listdir(path)  # noqa: PTH208 - names, and thousands of them
    except OSError:
        return []
