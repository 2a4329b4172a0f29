"""A program that holds connections to a port of this machine: PORT NUMBER WORD.

Each sends WORD and reads nothing; those that end are replaced. A line is written once there were
NUMBER of them.
"""

import selectors
import socket
import sys
from itertools import count


def main(port: int, number: int, word: bytes) -> None:
    """Do it until killed."""
    made = count(1)
    with selectors.DefaultSelector() as poll:
        for _ in range(number):
            begin(poll, port)
        while True:
            for key, events in poll.select():
                client = key.fileobj
                assert isinstance(client, socket.socket)
                try:
                    if not events & selectors.EVENT_WRITE and client.recv(1):
                        poll.unregister(client)  # it is answered, and does not read the rest
                    elif events & selectors.EVENT_WRITE:
                        client.sendall(word)
                        poll.modify(client, selectors.EVENT_READ)
                        if number == next(made):
                            sys.stdout.write("connected\n")
                            sys.stdout.flush()
                    else:
                        raise ConnectionError
                except OSError:
                    poll.unregister(client)
                    client.close()
                    begin(poll, port)


def begin(poll: selectors.BaseSelector, port: int) -> None:
    client = socket.socket()
    client.setblocking(False)
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.connect_ex(("127.0.0.1", port))
    poll.register(client, selectors.EVENT_WRITE)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3].encode())
