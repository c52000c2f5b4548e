"""A read-only S3 endpoint on loopback that shows a few files under very many names and answers with a delay.

Run in a separate process, so that it does not share an interpreter with the benchmark.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import re
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from multiprocessing.connection import Connection
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

BUCKET = "many"
_PAGE = 1000
_DATE = "Thu, 01 Jan 2026 00:00:00 GMT"

Listed = dict[str, str]  # name in the bucket → path of the file that it stands for
Patterns = list[tuple[str, str]]  # of names that exist and are in no listing: regular expression, path of the file


@contextlib.contextmanager
def serving(listed: Listed, patterns: Patterns, delay: float) -> Iterator[dict[str, str]]:
    """Serve for the block; gives the environment in which ``s3://many/…`` is this endpoint."""
    here, there = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(target=_serve, args=(there, listed, patterns, delay))
    process.start()
    try:
        yield {
            "AWS_ENDPOINT_URL": here.recv(),
            "AWS_ACCESS_KEY_ID": "any",
            "AWS_SECRET_ACCESS_KEY": "any",
            "AWS_REGION": "us-east-1",
            "AWS_DEFAULT_REGION": "us-east-1",
        }
    finally:
        process.kill()
        process.join()


def _serve(to: Connection, listed: Listed, patterns: Patterns, delay: float) -> None:
    contents = {path: open(path, "rb").read() for path in {*listed.values(), *(path for _, path in patterns)}}  # noqa: SIM115
    names = sorted(listed)

    def find(name: str) -> bytes | None:
        path = listed.get(name) or next((path for form, path in patterns if re.fullmatch(form, name)), None)
        return None if path is None else contents[path]

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_HEAD(self) -> None:
            time.sleep(delay)
            content = find(self._name()) if self._name() else b""  # the bucket itself
            self._answer(404 if content is None else 200, b"", 0 if content is None else len(content))

        def do_GET(self) -> None:
            time.sleep(delay)
            query = {key: values[0] for key, values in parse_qs(urlsplit(self.path).query).items()}
            if "list-type" in query:
                body = _listing(names, listed, contents, query)
                self._answer(200, body, len(body), kind="application/xml")
                return
            content = find(self._name())
            if content is None:
                self._answer(404, b"", 0)
                return
            asked = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
            first, last = (int(asked[1]), min(int(asked[2]), len(content) - 1)) if asked else (0, len(content) - 1)
            body = content[first : last + 1]
            self._answer(206 if asked else 200, body, len(body), f"bytes {first}-{last}/{len(content)}")

        def _name(self) -> str:
            return unquote(urlsplit(self.path).path).removeprefix(f"/{BUCKET}").lstrip("/")

        def _answer(self, code: int, body: bytes, length: int, span: str = "", kind: str = "binary/data") -> None:
            self.send_response(code)
            headers = {"Content-Length": str(length), "Content-Type": kind, "Last-Modified": _DATE, "ETag": '"x"'}
            for name, value in (headers | ({"Content-Range": span} if code == 206 else {})).items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    to.send(f"http://127.0.0.1:{server.server_port}")
    server.serve_forever()


def _listing(names: list[str], listed: Listed, contents: dict[str, bytes], query: dict[str, str]) -> bytes:
    """One page of names; none of them is in a folder below the prefix."""
    prefix, start = query.get("prefix", ""), int(query.get("continuation-token", "0"))
    limit = min(_PAGE, int(query.get("max-keys", _PAGE)))
    found = [name for name in names if name.startswith(prefix)]
    page, more = found[start : start + limit], start + limit < len(found)
    entries = "".join(
        f"<Contents><Key>{escape(name)}</Key><Size>{len(contents[listed[name]])}</Size><ETag>x</ETag>"
        "<LastModified>2026-01-01T00:00:00.000Z</LastModified></Contents>"
        for name in page
    )
    token = f"<NextContinuationToken>{start + limit}</NextContinuationToken>" if more else ""
    head = f"<Name>{BUCKET}</Name><Prefix>{escape(prefix)}</Prefix><KeyCount>{len(page)}</KeyCount>"
    flags = f"<MaxKeys>{limit}</MaxKeys><IsTruncated>{str(more).lower()}</IsTruncated>{token}"
    space = 'xmlns="http://s3.amazonaws.com/doc/2006-03-01/"'
    return f'<?xml version="1.0"?><ListBucketResult {space}>{head}{flags}{entries}</ListBucketResult>'.encode()
