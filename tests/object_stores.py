"""A real S3 endpoint on loopback, sound or failing."""

from __future__ import annotations

import threading


class FlakyStore:
    """A real S3 endpoint on loopback that answers every `period`-th request with an error."""

    def __init__(self) -> None:
        from moto.server import DomainDispatcherApplication, create_backend_app
        from werkzeug.serving import make_server

        self.period, self.requests = 0, 0
        self._app = DomainDispatcherApplication(create_backend_app)
        self._server = make_server("127.0.0.1", 0, self._answer, threaded=True)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def _answer(self, environ: dict, start_response) -> object:
        self.requests += 1
        if self.period and self.requests % self.period == 0:
            start_response("503 Slow Down", [("Content-Length", "0")])
            return [b""]
        return self._app(environ, start_response)

    def uri(self, path: str) -> str:
        return f"s3://user:password@{path}?endpoint_override=127.0.0.1:{self._server.port}&scheme=http"

    def close(self) -> None:
        self._server.shutdown()
