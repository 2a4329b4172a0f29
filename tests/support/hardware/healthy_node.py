"""What a node on which nothing is wrong has below its root, besides the kubelet's directory."""

from pathlib import Path

RESOURCE = "example.com/dev"

PROC = {
    "sys/kernel/osrelease": "6.1.0\n",
    "sys/fs/inotify/max_user_instances": "128\n",
    "sys/fs/inotify/max_user_watches": "65536\n",
    "sys/fs/file-nr": "1000 0 100000\n",
    "self/limits": "Limit  Soft Limit  Hard Limit  Units\nMax open files  524288  524288  files\n",
    "self/mountinfo": "22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n",
    "self/attr/current": "unconfined\n",
    "812/comm": "kubelet\n",
    "812/cmdline": "/usr/bin/kubelet\0--config=/etc/kubelet.yaml\0",
}


def write(path: Path, text: str = "") -> Path:
    """Write ``path`` and make the directories that it needs."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def build(root: Path) -> None:
    """Make the tree."""
    for name, text in PROC.items():
        write(root / "proc" / name, text)
