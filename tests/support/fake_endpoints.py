"""Object stores that answer everything with one error, or not at all, on loopback."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

Trouble = Literal["forbidden", "wrong region", "busy", "broken", "refused", "hung"]

ANSWERS: dict[Trouble, tuple[int, str, str]] = {
    "forbidden": (403, "AccessDenied", ""),
    "wrong region": (301, "PermanentRedirect", "x-amz-bucket-region: eu-west-1\r\n"),
    "busy": (503, "SlowDown", ""),
    "broken": (500, "InternalError", ""),
}


@dataclass
class Endpoint:
    """A store in trouble. One that is hung takes the connection and says nothing."""

    port: int
    connections: list[socket.socket] = field(default_factory=list)

    def uri(self, path: str) -> str:
        """A place on it."""
        options = f"endpoint_override=127.0.0.1:{self.port}&scheme=http&region=us-east-1"
        return f"s3://user:password@{path}?{options}"


@contextlib.contextmanager
def fake_endpoint(trouble: Trouble) -> Iterator[Endpoint]:
    """A store with this trouble for the block."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        endpoint = Endpoint(listener.getsockname()[1])
        if trouble == "refused":
            listener.close()
        else:
            listener.listen(64)
            threading.Thread(target=_serve, args=(listener, endpoint, trouble), daemon=True).start()
        yield endpoint


def _serve(listener: socket.socket, endpoint: Endpoint, trouble: Trouble) -> None:
    with contextlib.suppress(OSError):
        while True:
            connection, _ = listener.accept()
            endpoint.connections.append(connection)
            if trouble != "hung":
                threading.Thread(target=_answer, args=(connection, *ANSWERS[trouble]), daemon=True).start()


def _answer(connection: socket.socket, status: int, code: str, header: str) -> None:
    with connection, contextlib.suppress(OSError):
        while request := connection.recv(1 << 20):
            body = "" if request.startswith(b"HEAD") else f"<Error><Code>{code}</Code><Message>no</Message></Error>"
            head = f"HTTP/1.1 {status} {code}\r\n{header}Content-Type: application/xml\r\nContent-Length: {len(body)}"
            connection.sendall(f"{head}\r\n\r\n{body}".encode())
