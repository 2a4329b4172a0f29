"""A stand-in for NVIDIA's program of the same name, as ``mps.FakeMps`` installs it.

With ``-f`` it is a control daemon: a socket of packets, ``control``, in the directory of pipes, and
the commands that are known of the real one. Without, it passes a command on. What goes wrong is in
the file that FAKE_MPS names, by the UUID of the daemon's first device.
"""

import json
import os
import select
import socket
import sys
import time
from contextlib import suppress

PIPE, LOG = (os.environ[f"CUDA_MPS_{name}_DIRECTORY"] for name in ("PIPE", "LOG"))
CONTROL, SERVER = f"{PIPE}/control", "4242"
DEVICES = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")


def does(what: str, default: str = "") -> str:
    with suppress(FileNotFoundError), open(os.environ["FAKE_MPS"]) as file:  # noqa: PTH123
        return str(json.load(file).get(DEVICES[0], {}).get(what, default))
    return default


def packets() -> socket.socket:
    return socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)


def ask() -> int:
    with packets() as client:
        try:
            client.connect(CONTROL)
        except OSError:
            sys.stdout.write("Cannot find MPS control daemon process\n")
            return 1
        client.send(sys.stdin.read().strip().encode())
        said = client.recv(65536).decode()
    while "flood" in said:
        sys.stdout.write(said * 1000)
    os.write(sys.stderr.fileno(), b"ld.so: a library cannot be preloaded\n")
    sys.stdout.write(said)
    return 0


class Daemon:
    def __init__(self) -> None:
        self.values = {"active_thread_percentage": "100.0"}
        self.clients: list[socket.socket] = []
        self.quits = False

    def serve(self) -> None:
        with suppress(OSError), packets() as other:
            other.connect(CONTROL)
            sys.exit("An instance of this daemon is already running")
        with open(f"{PIPE}/nvidia-cuda-mps-control.pid", "w") as file:  # noqa: PTH123
            file.write(str(os.getpid()))
        server = packets()
        server.bind(CONTROL)
        server.listen()
        peers = [server]
        while self.clients or not self.quits:
            for peer in select.select(peers, [], [])[0]:
                if peer is server:
                    peers.append(server.accept()[0])
                elif not self.hears(peer):
                    peers.remove(peer)
                    peer.close()
        with suppress(FileNotFoundError):
            os.unlink(CONTROL)  # noqa: PTH108

    def hears(self, peer: socket.socket) -> bool:
        """Serve a peer; return whether it stays, as clients do."""
        command = peer.recv(65536).decode()
        if command == "client":
            self.clients.append(peer)
            peer.send(b"served")
        elif command:
            with open(f"{LOG}/control.log", "a") as file:  # noqa: PTH123
                file.write(f"Cmd:{command}\n")
            while does("answers") == "never" or does("holds", "\0") in command:
                time.sleep(0.02)
            with suppress(OSError):
                peer.send(self.answer(*command.split()).encode() + b"\n")
        elif peer in self.clients:
            self.clients.remove(peer)
        return command == "client"

    def answer(self, command: str, *words: str) -> str:
        self.quits = self.quits or command == "quit"
        kind, _, what = command.partition("_default_")
        names = DEVICES if does("memory") == "uuid" else map(str, range(len(DEVICES)))
        if kind == "set" and len(words) == 1:
            self.values[what] = f"{float(words[0]):.1f}"
        elif kind == "set" and words[0] in names and does("memory") != "none":
            self.values[f"{what} {words[0]}"] = words[1]
        elif kind == "get":
            said = self.values.get(" ".join([what, *words]), "0G")
            return f"{int(said[:-1]) // 1024}G" if does("memory") == "rounded" and words else said
        elif command == "get_client_list":
            return "\n".join(str(number) for number, _ in enumerate(self.clients, 1))
        return does("answers") or SERVER * (command == "get_server_list" and bool(self.clients))


if __name__ == "__main__":
    if sys.argv[1:] != ["-f"]:
        sys.exit(ask())
    if does("start") == "die":
        sys.exit("MPS: cannot open the device")
    while does("start") == "hang":
        time.sleep(0.02)
    Daemon().serve()
