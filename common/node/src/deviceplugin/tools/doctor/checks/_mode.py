"""How a plugin would register here, and why."""

from collections.abc import Iterator
from typing import Final

from deviceplugin.checks import Finding, Node, failure, ok
from deviceplugin.tools.doctor._check import Check


def _check(node: Node) -> Iterator[Finding]:
    mode = node.settings.registration
    directories = {"self": node.plugin_dir, "watcher": node.registry_dir}
    here = [name for name, path in directories.items() if path.is_dir()]
    if mode == "auto" and here:
        path = directories[here[0]]
        yield ok("registration=auto", f"would be {here[0]}, because {path} exists")
    elif mode in here:
        yield ok(f"registration={mode}", f"{directories[mode]} exists")
    else:
        wanted = directories.values() if mode == "auto" else [directories[mode]]
        yield failure(
            f"registration={mode}",
            f"there is no {' and no '.join(map(str, wanted))}",
            means="a plugin waits until one is there, and its devices are not advertised.",
            do="mount the directory at the same path as on the node"
            + (f", or set registration={here[0]}, whose directory exists." if here else "."),
        )


CHECK: Final = Check("mode", "how a plugin would register, and why", _check)
