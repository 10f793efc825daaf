"""Serves a playground to this machine only: fixed files in memory, behind a token, on the loopback address."""

from __future__ import annotations

import hmac
import secrets
import sys
from collections.abc import Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

HOST = "127.0.0.1"
TYPES = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "json": "application/json",
    "svg": "image/svg+xml",
    "wasm": "application/wasm",
}
POLICY = "default-src 'self'; script-src 'self' 'wasm-unsafe-eval'; base-uri 'none'; form-action 'none'"
HEADERS = {
    "Content-Security-Policy": f"{POLICY}; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    # isolates the page in its own process, which allows the finest timers
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Embedder-Policy": "require-corp",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "microphone=(self)",
    "Cache-Control": "no-store",
}


class Server(ThreadingHTTPServer):
    """Listens on a port of the loopback address; `address` is the URL of the page."""

    daemon_threads = True

    def __init__(self, files: Mapping[str, bytes], port: int = 0):
        if not 0 <= port <= 65535:
            raise ValueError(f"port must be 0 to 65535, got {port}")
        self.token = secrets.token_urlsafe(24)
        self.files = dict(files)
        try:
            super().__init__((HOST, port), _Handler)
        except OSError as error:
            raise ValueError(f"cannot listen on port {port} of {HOST}: {error.strerror}") from None
        self.hosts = (f"{HOST}:{self.server_port}", f"localhost:{self.server_port}")

    @property
    def address(self) -> str:
        """The URL of the page, with its token."""
        return f"http://{HOST}:{self.server_port}/{self.token}/"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignores connections that the client broke off; shows any other error, since it is ours."""
        if not isinstance(sys.exc_info()[1], (ConnectionError, TimeoutError)):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    """Answers GET and HEAD. Paths are only compared as a whole, never resolved."""

    server: Server
    protocol_version = "HTTP/1.1"
    timeout = 20

    def do_GET(self) -> None:
        """Sends a file, or an error of one line."""
        if self.headers.get_all("Host") not in [[host] for host in self.server.hosts]:
            self._refuse(HTTPStatus.MISDIRECTED_REQUEST)
            return
        begin = f"/{self.server.token}/".encode()
        path = self.path.encode("utf-8", "surrogateescape")
        known = hmac.compare_digest(path[: len(begin)], begin)
        name = self.path[len(begin) :] or "index.html"
        if known and name in self.server.files:
            self._answer(HTTPStatus.OK, self.server.files[name], TYPES.get(name.rpartition(".")[2]))
        else:
            self._refuse(HTTPStatus.NOT_FOUND if known else HTTPStatus.FORBIDDEN)

    def do_HEAD(self) -> None:
        """Sends the same without the body."""
        self.do_GET()

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Refuses malformed requests and other methods in the same way."""
        other = code == HTTPStatus.NOT_IMPLEMENTED  # the library's status for other methods
        self._refuse(HTTPStatus.METHOD_NOT_ALLOWED if other else HTTPStatus(code))

    def _refuse(self, status: HTTPStatus) -> None:
        self.close_connection = True  # what follows may be a request body
        self._answer(status, f"{status.value} {status.phrase}\n".encode(), "text/plain; charset=utf-8")

    def _answer(self, status: HTTPStatus, body: bytes, kind: str | None) -> None:
        self.send_response_only(status)
        self.send_header("Content-Type", kind or "application/octet-stream")
        self.send_header("Content-Length", str(len(body)))
        for name, value in HEADERS.items():
            self.send_header(name, value)
        if status is HTTPStatus.METHOD_NOT_ALLOWED:
            self.send_header("Allow", "GET, HEAD")
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Logs nothing: the terminal shows the address."""
