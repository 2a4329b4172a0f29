"""Copy this Python and the libraries that it needs, and nothing else, into a new root.

    python_only.py ROOT

There is no shell, no package manager, and no other program but ldconfig, which Python uses to find
libraries. The libraries are those of Python and of the plugins' packages. They are the same for all
plugins, so that their images share a layer. The Debian packages of the files are recorded where
image scanners expect them, with their licences.
"""

import compileall
import py_compile
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

LEFT_OUT: Final = (
    *("__pycache__", "site-packages", "dist-packages", "sitecustomize.py", "config-*"),
    *("ensurepip", "pydoc_data", "venv", "EXTERNALLY-MANAGED", "__phello__"),
    *("test", "_test*", "xx*", "idlelib", "lib2to3", "distutils"),
    # These need libraries that no plugin needs.
    *("tkinter", "turtle*", "_tkinter*", "curses", "_curses*", "readline*", "dbm", "_dbm*"),
    *("_gdbm*", "sqlite3", "_sqlite3*", "nis.*", "ossaudiodev*"),
    *("_codecs_cn*", "_codecs_hk*", "_codecs_iso2022*", "_codecs_jp*", "_codecs_kr*"),
    *("_codecs_tw*",),
)
FOR_PLUGINS: Final = (
    *("libstdc++.so.6", "libgcc_s.so.1", "libdl.so.2", "libpthread.so.0", "librt.so.1"),  # grpcio
    "libudev.so.1",  # pyudev
)
DIRECTORIES: Final = ("dev", "etc", "proc", "run", "sys", "tmp", "var/lib/dpkg/status.d")
ACCOUNTS: Final = {
    "etc/passwd": "root:x:0:0::/:/sbin/nologin\nnobody:x:65532:65532::/:/sbin/nologin\n",
    "etc/group": "root:x:0:\nnobody:x:65532:\n",
}


def libraries(objects: Iterable[Path]) -> Iterator[Path]:
    """Yield the shared libraries that ``objects`` need, at the paths that the loader finds."""
    for one in objects:
        done = subprocess.run(["ldd", one], capture_output=True, text=True, check=False)  # noqa: S607
        for line in done.stdout.splitlines():
            if found := re.search(r"(/\S+) \(0x", line):
                yield Path(found[1])


def for_plugins() -> Iterator[Path]:
    """Yield the libraries that plugins need."""
    known = subprocess.run(["ldconfig", "-p"], capture_output=True, text=True, check=True)  # noqa: S607
    for name in FOR_PLUGINS:
        found = re.search(rf"^\s*{re.escape(name)} .* => (\S+)$", known.stdout, re.MULTILINE)
        if found is None:
            raise SystemExit(f"python_only.py: plugins need {name}, which is not installed")
        yield Path(found[1])


class Root:
    """The new root."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.taken: set[Path] = set()
        for name in ("bin", "lib", "lib64", "sbin"):
            if Path("/", name).is_symlink():
                target = Path("/", name).readlink()
                (path / target).mkdir(parents=True)
                (path / name).symlink_to(target)
        for name in DIRECTORIES:
            (path / name).mkdir(parents=True, exist_ok=True)
        (path / "tmp").chmod(0o1777)
        for name, text in ACCOUNTS.items():
            (path / name).write_text(text, encoding="utf-8")

    def take(self, path: Path) -> None:
        """Copy a file to the same path in the root, with all links on the way to it."""
        path = path.parent.resolve() / path.name
        place = self.path / path.relative_to("/")
        if path in self.taken:
            return
        self.taken.add(path)
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(path, place, follow_symlinks=False)
        if path.is_symlink():
            self.take(path.parent / path.readlink())

    def take_tree(self, path: Path) -> Path:
        """Copy a folder without ``LEFT_OUT``, and return the copy."""
        place = self.path / path.relative_to("/")
        shutil.copytree(path, place, ignore=shutil.ignore_patterns(*LEFT_OUT), symlinks=True)
        self.taken.update(Path("/", one.relative_to(self.path)) for one in place.rglob("*"))
        return place

    def name_packages(self) -> None:
        """Record the Debian packages of the files, with their licences."""
        if shutil.which("dpkg-query") is None:
            return
        paths = sorted(map(str, self.taken))
        # Packages list files by their paths from before /lib became a link to /usr/lib.
        paths += [path.removeprefix("/usr") for path in paths if path.startswith("/usr/lib")]
        query = ["dpkg-query", "--search", *paths]
        # dpkg-query fails for files without a package, which can be Python's. That is fine.
        done = subprocess.run(query, capture_output=True, text=True, check=False)
        found = re.findall(
            r"^([a-z0-9.+-]+(?:, [a-z0-9.+-]+)*)(?::\w+)?: /", done.stdout, re.MULTILINE
        )
        for package in {name for names in found for name in names.split(", ")}:
            status = ["dpkg-query", "--status", package]
            text = subprocess.run(status, capture_output=True, text=True, check=True).stdout
            place = self.path / "var/lib/dpkg/status.d" / package
            place.write_text(text, encoding="utf-8")
            licence = Path("/usr/share/doc", package, "copyright")
            if licence.is_file():
                self.take(licence)


def main(argv: list[str]) -> None:
    """Make the root."""
    root = Root(Path(argv[0]))
    program = Path(sys.executable)
    root.take(program.with_name("python3"))
    standard = root.take_tree(Path(sysconfig.get_path("stdlib")))
    named = [*for_plugins()]
    objects = [program.resolve(), *standard.rglob("*.so"), *named]
    ldconfig = Path(shutil.which("ldconfig") or "/sbin/ldconfig")
    for path in [*libraries(objects), *named, ldconfig]:
        root.take(path)
    # Scanners know the flaws of packages by the distribution.
    for path in (
        Path("/etc/os-release"),
        Path("/etc/ld.so.conf"),
        *Path("/etc/ld.so.conf.d").glob("*.conf"),
    ):
        if path.is_file():
            root.take(path)
    subprocess.run([ldconfig, "-r", root.path], check=True)
    root.name_packages()
    compileall.compile_dir(
        standard,
        quiet=1,
        stripdir=root.path,
        prependdir="/",
        invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH,
    )


if __name__ == "__main__":
    main(sys.argv[1:])
