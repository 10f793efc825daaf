"""The server gives its files to this machine's browser, and nothing else to anybody."""

import contextlib
import http.client
import socket
from urllib.parse import urlsplit

import pytest

from mgrade.play import Server
from play.sites import served

FILES = {"index.html": b"<!doctype html>", "main.js": b"1", "model.wasm": b"\0asm", "playground.json": b"{}"}


@pytest.fixture
def server():
    with served(FILES) as server:
        yield server


def ask(server, path, method="GET", host=None, headers=()):
    """Status, headers and body; the path goes out as it stands."""
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=10)
    try:
        connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
        for name, value in ({"Host": host or f"127.0.0.1:{server.server_port}"} | dict(headers)).items():
            connection.putheader(name, value)
        connection.endheaders()
        answer = connection.getresponse()
        return answer.status, dict(answer.getheaders()), answer.read()
    finally:
        connection.close()


def inside(server, name=""):
    return f"/{server.token}/{name}"


def test_every_file_is_there_with_its_type_and_headers(server):
    assert urlsplit(server.address).path == inside(server)
    kinds = {"": "text/html", "main.js": "text/javascript", "model.wasm": "application/wasm"}
    for name, kind in kinds.items():
        status, headers, body = ask(server, inside(server, name))
        assert (status, body) == (200, FILES[name or "index.html"])
        assert headers["Content-Type"].split(";")[0] == kind
        assert "default-src 'self'" in headers["Content-Security-Policy"]
        assert "'unsafe-inline'" not in headers["Content-Security-Policy"]
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["Referrer-Policy"] == "no-referrer"
        assert headers["Cross-Origin-Opener-Policy"] == "same-origin"
        assert headers["Cross-Origin-Embedder-Policy"] == "require-corp"
        assert headers["Cache-Control"] == "no-store"
        assert "Server" not in headers


def test_head_is_get_without_the_body(server):
    status, headers, body = ask(server, inside(server, "model.wasm"), "HEAD")
    assert (status, body, headers["Content-Length"]) == (200, b"", "4")


def test_one_connection_serves_several_requests(server):
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=10)
    for _ in range(2):
        connection.request("GET", inside(server, "main.js"))
        assert connection.getresponse().read() == b"1"
    connection.close()


@pytest.mark.parametrize(
    "name",
    [
        "../../../../etc/passwd",
        "..%2f..%2f..%2fetc%2fpasswd",
        "%2e%2e/%2e%2e/etc/passwd",
        "..%252f..%252fetc%252fpasswd",
        "/etc/passwd",
        "%2fetc%2fpasswd",
        "..\\..\\etc\\passwd",
        "..%5c..%5cetc%5cpasswd",
        "C:\\Windows\\win.ini",
        "./main.js",
        "main.js/",
        "main.js?x",
        "main.js%00",
        "MAIN.JS",
        "other.js",
    ],
)
def test_only_exact_names_are_files(server, name):
    status, _, body = ask(server, inside(server, name))
    assert (status, body) == (404, b"404 Not Found\n")


@pytest.mark.parametrize("path", ["/", "/main.js", "//", "/index.html", "/x/main.js", "*", "http://evil.example/"])
def test_without_the_token_nothing_is_there(server, path):
    assert ask(server, path)[0] == 403


def test_a_wrong_token_is_none(server):
    for token in (server.token[:-1], server.token + "x", server.token.swapcase(), "%" + server.token, "%C3%A9" * 32):
        assert ask(server, f"/{token}/main.js")[0] == 403
    other = Server(FILES)
    other.server_close()
    assert other.token != server.token
    assert len(other.token) >= 32


@pytest.mark.parametrize("host", ["evil.example", "evil.example:{port}", "127.0.0.1", "127.0.0.1:1", "[::1]:{port}"])
def test_another_host_is_refused(server, host):
    """A name that somebody points to this machine (DNS rebinding) is not ours."""
    assert ask(server, inside(server), host=host.format(port=server.server_port))[0] == 421


def test_localhost_is_this_machine(server):
    assert ask(server, inside(server), host=f"localhost:{server.server_port}")[0] == 200


def test_no_host_or_two_are_refused(server):
    own = f"Host: 127.0.0.1:{server.server_port}\r\n"
    for hosts in ("", own * 2, own + "Host: evil.example\r\n"):
        with socket.create_connection(("127.0.0.1", server.server_port), timeout=10) as connection:
            connection.sendall(f"GET {inside(server)} HTTP/1.1\r\n{hosts}\r\n".encode())
            assert connection.recv(100).startswith(b"HTTP/1.1 421")
    with socket.create_connection(("127.0.0.1", server.server_port), timeout=10) as connection:
        connection.sendall(b"GET /" + b"\xff\xc3" * 20 + f"/ HTTP/1.1\r\n{own}\r\n".encode())
        assert connection.recv(100).startswith(b"HTTP/1.1 403")


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT", "WHATEVER"])
def test_only_get_and_head(server, method):
    status, headers, _ = ask(server, inside(server), method)
    assert (status, headers["Allow"], headers["Connection"]) == (405, "GET, HEAD", "close")


def test_what_is_no_request_is_refused_in_a_line(server):
    for line, status in ((b"GET\r\n\r\n", b"400"), (b"GET /" + b"x" * 70000 + b" HTTP/1.1\r\n\r\n", b"414")):
        with socket.create_connection(("127.0.0.1", server.server_port), timeout=10) as connection:
            connection.sendall(line)
            assert status in connection.recv(1000)
    assert ask(server, inside(server))[0] == 200  # and the server goes on


def test_other_interfaces_are_not_listened_on(server):
    assert server.server_address[0] == "127.0.0.1"
    for address in others():
        with pytest.raises(OSError, match=r"refused|timed out|unreachable|cannot assign"):
            socket.create_connection((address, server.server_port), timeout=2)


def others():
    """Addresses of this machine that are not ours: another of the loopback network's, and one that others reach."""
    yield "127.0.0.2"
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe, contextlib.suppress(OSError):
        probe.connect(("192.0.2.1", 9))  # sends nothing; the system chooses the address it would send from
        yield probe.getsockname()[0]


def test_a_port_that_cannot_be_is_one_line(server):
    with pytest.raises(ValueError, match=f"cannot listen on port {server.server_port} of 127.0.0.1"):
        Server(FILES, server.server_port)
    with pytest.raises(ValueError, match="port must be 0 to 65535, got 70000"):
        Server(FILES, 70000)
