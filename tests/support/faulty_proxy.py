"""A proxy in front of an object store, on loopback, that disturbs some of the answers for a while."""

from __future__ import annotations

import contextlib
import http.client
import socket
import struct
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Literal, get_args

Kind = Literal["pause", "503", "429", "reset", "slow", "truncated", "403"]
KINDS: tuple[Kind, ...] = tuple(kind for kind in get_args(Kind) if kind != "403")  # that may pass
_ERRORS = {"503": (503, "SlowDown"), "429": (429, "TooManyRequests"), "403": (403, "ExpiredToken")}


@dataclass
class Fault:
    """Of the requests whose path has ``place`` in it, those from number ``first`` on fail, for some ``seconds``.

    ``pause``: no answer before the fault is over. ``slow``: the body comes in small pieces. ``truncated``: the body
    ends before its length.
    """

    kind: Kind
    first: int
    seconds: float
    place: str = ""
    seen: int = 0  # requests with the place in their path
    hits: int = 0
    ends: float | None = None  # known when it has begun

    def strikes(self, path: str) -> bool:
        if self.place not in path:
            return False
        self.seen += 1
        if self.seen <= self.first:
            return False
        if self.ends is None:
            self.ends = time.monotonic() + self.seconds
        struck = time.monotonic() < self.ends
        self.hits += struck
        return struck


class FaultyProxy:
    """Passes requests on to ``upstream``; ``fault`` says which of them fail."""

    def __init__(self, upstream: str) -> None:
        self.upstream = upstream
        self.fault: Fault | None = None
        self.paths: list[str] = []  # of the requests since the last fault was set
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"proxy": self}))
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def begin(self, fault: Fault | None) -> None:
        self.paths, self.fault = [], fault

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@contextlib.contextmanager
def faulty_proxy(upstream: str) -> Iterator[FaultyProxy]:
    proxy = FaultyProxy(upstream)
    try:
        yield proxy
    finally:
        proxy.close()


class _Handler(BaseHTTPRequestHandler):
    proxy: FaultyProxy
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, *_: object) -> None:
        pass

    def handle(self) -> None:
        with contextlib.suppress(OSError):  # a client that gave up
            super().handle()

    def _pass_on(self) -> None:
        fault = self.proxy.fault
        self.proxy.paths.append(self.path)
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        kind = fault.kind if fault and fault.strikes(self.path) else None
        if kind == "pause" and fault is not None and fault.ends is not None:
            time.sleep(max(0.0, fault.ends - time.monotonic()))
        if kind == "reset":
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.close_connection = True
            self.connection.close()
        elif kind in _ERRORS:
            self._refuse(*_ERRORS[kind])
        else:
            self._answer(body, kind)

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _pass_on  # noqa: N815

    def _refuse(self, status: int, code: str) -> None:
        body = f"<Error><Code>{code}</Code><Message>no</Message></Error>".encode()
        self._head(status, {"Content-Type": "application/xml"}, len(body))
        if self.command != "HEAD":
            self.wfile.write(body)

    def _answer(self, body: bytes, kind: str | None) -> None:
        upstream = http.client.HTTPConnection(self.proxy.upstream, timeout=30)
        with contextlib.closing(upstream):
            upstream.request(self.command, self.path, body or None, dict(self.headers.items()))
            answer = upstream.getresponse()
            data = answer.read()
        headers = {name: value for name, value in answer.headers.items() if name not in ("Connection", "Server")}
        length = int(headers.pop("Content-Length", len(data)))
        if self.command == "HEAD":
            self._head(answer.status, headers, length)
            return
        self._head(answer.status, headers, len(data))
        if kind == "truncated":
            self.wfile.write(data[: len(data) // 2])
            self.close_connection = True
        elif kind == "slow":
            for start in range(0, len(data), 512):
                self.wfile.write(data[start : start + 512])
                time.sleep(0.02)
        else:
            self.wfile.write(data)

    def _head(self, status: int, headers: dict[str, str], length: int) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(length))
        self.end_headers()
