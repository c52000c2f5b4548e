"""A real S3 endpoint on loopback that can fail, lag and break down."""

from __future__ import annotations

import contextlib
import logging
import secrets
import threading
import time
from collections.abc import Iterator
from urllib.parse import parse_qs

import pytest
from pyarrow import fs

from support.fake_endpoints import ANSWERS, Trouble


class ObjectStore:
    """Answers every `period`-th request with an error, each one after `delay` seconds; `down`, it fails them all.

    `trouble` maps a place to the error for requests to it, or to anything below it. With `ignores_conditions` it writes
    whatever the condition of a request says.
    """

    def __init__(self) -> None:
        from moto.server import DomainDispatcherApplication, create_backend_app
        from werkzeug.serving import make_server

        logging.getLogger("werkzeug").setLevel(logging.ERROR)
        self.period, self.delay, self.down, self.requests = 0, 0.0, False, 0
        self.ignores_conditions = False
        self.trouble: dict[str, Trouble] = {}
        self.seen: list[tuple[str, str]] = []  # method and path of each request
        self.peak, self._now = 0, 0  # requests under way at a time
        self.bucket = f"bucket-{secrets.token_hex(4)}"  # moto keeps one set of buckets for a whole process
        self._app = DomainDispatcherApplication(create_backend_app)
        self._server = make_server("127.0.0.1", 0, self._answer, threaded=True)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def _answer(self, environ: dict, start_response) -> object:
        self.requests += 1
        self.seen.append((environ["REQUEST_METHOD"], environ["PATH_INFO"]))
        self._now += 1
        self.peak = max(self.peak, self._now)
        time.sleep(self.delay)
        self._now -= 1
        if self.down or (self.period and self.requests % self.period == 0):
            start_response("503 Slow Down", [("Content-Length", "0")])
            return [b""]
        # A place is the path of an object, and in a listing the prefix.
        asked = [environ["PATH_INFO"], *parse_qs(environ["QUERY_STRING"]).get("prefix", [])]
        for place, trouble in self.trouble.items():
            if any(place in one for one in asked):
                status, code, _ = ANSWERS[trouble]
                start_response(f"{status} {code}", [("Content-Length", "0")])
                return [b""]
        if self.ignores_conditions:
            for header in ("HTTP_IF_MATCH", "HTTP_IF_NONE_MATCH"):
                environ.pop(header, None)
        return self._app(environ, start_response)

    @property
    def endpoint(self) -> str:
        return f"127.0.0.1:{self._server.port}"

    def uri(self, path: str, secret: str = "password") -> str:
        """``path`` with the credentials in the URI itself."""
        return f"s3://user:{secret}@{path}?endpoint_override={self.endpoint}&scheme=http"

    def environment(self, secret: str = "secret") -> dict[str, str]:
        """What lets a plain ``s3://bucket/…`` lead here."""
        return {
            "AWS_ENDPOINT_URL": f"http://{self.endpoint}",
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": secret,
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    def make_bucket(self) -> None:
        import boto3

        place = {"endpoint_url": f"http://{self.endpoint}", "region_name": "us-east-1"}
        client = boto3.client("s3", aws_access_key_id="test", aws_secret_access_key="test", **place)
        client.create_bucket(Bucket=self.bucket)

    def filesystem(self) -> fs.FileSystem:
        """The store as this process reaches it, with the environment set."""
        return fs.FileSystem.from_uri(f"s3://{self.bucket}")[0]

    def close(self) -> None:
        self._server.shutdown()


@contextlib.contextmanager
def object_store_in_environment(monkeypatch: pytest.MonkeyPatch) -> Iterator[ObjectStore]:
    """An object store with a bucket, which this process and those it starts find under ``s3://BUCKET``."""
    store = ObjectStore()
    for name, value in store.environment().items():
        monkeypatch.setenv(name, value)
    store.make_bucket()
    try:
        yield store
    finally:
        store.close()
