"""A stand-in for NVIDIA's program of the same name, as ``mps.FakeMps`` installs it.

With ``-f`` it is a control daemon: a socket of packets, ``control``, in the directory of pipes, and
the commands that are known of the real one. Without, it passes a command on. What goes wrong is in
the file that FAKE_MPS names, by the UUID of the daemon's first device.
"""

import json
import os
import selectors
import socket
import sys
import time
from contextlib import suppress
from pathlib import Path

PIPE = Path(os.environ["CUDA_MPS_PIPE_DIRECTORY"])
LOG = Path(os.environ["CUDA_MPS_LOG_DIRECTORY"])
SERVER = "4242"


def behaviour(device: str) -> dict[str, str]:
    with suppress(FileNotFoundError):
        known: dict[str, dict[str, str]] = json.loads(Path(os.environ["FAKE_MPS"]).read_text())
        return known.get(device, {})
    return {}


def packets() -> socket.socket:
    return socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)


def ask() -> int:
    with packets() as client:
        try:
            client.connect(str(PIPE / "control"))
        except OSError:
            sys.stdout.write("Cannot find MPS control daemon process\n")
            return 1
        client.send(sys.stdin.read().strip().encode())
        sys.stdout.write(client.recv(65536).decode())
    return 0


class Daemon:
    def __init__(self) -> None:
        self.devices = os.environ["CUDA_VISIBLE_DEVICES"].split(",")
        self.threads, self.memory = "100.0", dict[str, str]()
        self.clients: list[socket.socket] = []
        self.quits = False
        self.selector = selectors.DefaultSelector()

    def serve(self) -> None:
        does = behaviour(self.devices[0])
        if does.get("start") == "die":
            sys.exit("MPS: cannot open the device")
        while behaviour(self.devices[0]).get("start") == "hang":
            time.sleep(0.02)
        with suppress(OSError), packets() as other:
            other.connect(str(PIPE / "control"))
            sys.exit("An instance of this daemon is already running")
        (PIPE / "nvidia-cuda-mps-control.pid").write_text(str(os.getpid()))
        server = packets()
        server.bind(str(PIPE / "control"))
        server.listen()
        self.selector.register(server, selectors.EVENT_READ)
        while not (self.quits and not self.clients):
            for key, _ in self.selector.select():
                if key.fileobj is server:
                    self.selector.register(server.accept()[0], selectors.EVENT_READ)
                elif isinstance(key.fileobj, socket.socket):
                    self.read(key.fileobj)
        (PIPE / "control").unlink(missing_ok=True)

    def read(self, peer: socket.socket) -> None:
        command = peer.recv(65536).decode()
        if command == "client":
            self.clients.append(peer)
            peer.send(b"served")
            return
        if command:
            with (LOG / "control.log").open("a") as log:
                log.write(f"Cmd:{command}\n")
            while behaviour(self.devices[0]).get("answers") == "never":
                time.sleep(0.02)
            while behaviour(self.devices[0]).get("holds", "\0") in command:
                time.sleep(0.02)
            with suppress(OSError):
                peer.send(self.answer(*command.split()).encode() + b"\n")
        if peer in self.clients:
            self.clients.remove(peer)
        self.selector.unregister(peer)
        peer.close()

    def answer(self, command: str, *words: str) -> str:
        takes = behaviour(self.devices[0]).get("memory", "index")
        known = self.devices if takes == "uuid" else [str(n) for n in range(len(self.devices))]
        self.quits = self.quits or command == "quit"
        if command == "set_default_active_thread_percentage":
            self.threads = f"{float(words[0]):.1f}"
        elif command == "set_default_device_pinned_mem_limit":
            if takes != "none" and words[0] in known:
                self.memory[words[0]] = words[1]
        elif command == "get_default_device_pinned_mem_limit":
            said = self.memory.get(words[0], "0G")
            return f"{int(said[:-1]) // 1024}G" if takes == "rounded" else said
        return {
            "get_server_list": SERVER if self.clients else "",
            "get_client_list": "\n".join(str(n) for n, _ in enumerate(self.clients, 1)),
            "get_default_active_thread_percentage": self.threads,
        }.get(command, "")


if __name__ == "__main__":
    Daemon().serve() if sys.argv[1:] == ["-f"] else sys.exit(ask())
