"""Archives good and bad, and a server of our own to download them from."""

import gzip
import hashlib
import io
import tarfile
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from mgrade.tasks.download import fetch


class Server(ThreadingHTTPServer):
    """Serves `files` by path; knows ranges or not, cuts the first `cuts` answers after half, fails `failures` times.

    What goes on after a range has at most `most` bytes, and says how many it has or not.
    """

    daemon_threads = True

    def __init__(self, files):
        super().__init__(("127.0.0.1", 0), Handler)
        self.files, self.ranges, self.cuts, self.failures, self.asked = files, True, 0, 0, []
        self.most, self.says_length = None, True

    @property
    def address(self):
        return f"http://127.0.0.1:{self.server_address[1]}"


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        server = self.server
        data, wanted = server.files.get(self.path), self.headers.get("Range")
        server.asked.append(wanted)
        if server.failures:
            server.failures -= 1
            self.send_error(503)
            return
        if data is None:
            self.send_error(404)
            return
        begin = int(wanted.removeprefix("bytes=").removesuffix("-")) if wanted and server.ranges else 0
        if begin and begin >= len(data):
            self.send_response(416)
            self.send_header("Content-Range", f"bytes */{len(data)}")
            self.end_headers()
            return
        rest = data[begin:][: server.most if begin else None]
        self.send_response(206 if begin else 200)
        if begin:
            self.send_header("Content-Range", f"bytes {begin}-{begin + len(rest) - 1}/{len(data)}")
        if server.says_length or not begin:
            self.send_header("Content-Length", str(len(rest)))
        self.end_headers()
        if server.cuts:
            server.cuts -= 1
            rest = rest[: len(rest) // 2]
        self.wfile.write(rest)

    def log_message(self, *arguments):
        pass


@contextmanager
def serving(**files):
    with Server({f"/{name}": data for name, data in files.items()}) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def tar(members, *, wrap="cifar-10-batches-bin/"):
    """A tar.gz of (name, content) or of ready-made entries."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as archive:
        for member in members:
            if isinstance(member, tarfile.TarInfo):
                archive.addfile(member)
                continue
            name, content = member
            entry = tarfile.TarInfo(wrap + name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return out.getvalue()


def entry(name, kind, link=""):
    member = tarfile.TarInfo(name)
    member.type, member.linkname = kind, link
    return member


def negative(name):
    member = tarfile.TarInfo(name)
    member.size = -1
    return member


def extended(size):
    """A member whose comment is so long."""
    member = tarfile.TarInfo("extended")
    member.pax_headers = {"comment": "x" * size}
    return member


def chained(kind, times, content=lambda number: b"longer name\0"):
    """Headers of `kind`, each of which extends the next, and the end of an archive."""
    raw = b""
    for number in range(times):
        body = content(number)
        member = tarfile.TarInfo("extension")
        member.type, member.size = kind, len(body)
        raw += member.tobuf(tarfile.GNU_FORMAT) + body + bytes(-len(body) % 512)
    return gzip.compress(raw + tarfile.TarInfo("last").tobuf() + bytes(10240), mtime=0)


def field(name, value):
    """A field of a pax header, which begins with its own length."""
    rest = f" {name}={value}\n".encode()
    size = next(n for n in range(len(rest), len(rest) + 20) if len(str(n)) + len(rest) == n)
    return str(size).encode() + rest


BATCHES = [(f"{name}.bin", name.encode() * 5000) for name in (*(f"data_batch_{n}" for n in range(1, 6)), "test_batch")]
GOOD = tar(BATCHES)
PLAIN = gzip.decompress(GOOD)


def digest(data):
    return hashlib.sha256(data).hexdigest()


def get(server, folder, data=GOOD, **options):
    return fetch("cifar10", folder, f"{server.address}/a", digest(data), pause=0, **options)


def assert_whole(folder):
    here = folder / "cifar-10-batches-bin"
    assert sorted(path.name for path in here.iterdir()) == sorted(name for name, _ in BATCHES)
    assert all((here / name).read_bytes() == content for name, content in BATCHES)
    assert [path.name for path in folder.iterdir()] == [here.name]


def assert_nothing(folder, but=()):
    """No place, nothing unpacked; only the downloads named."""
    left = sorted(path.name for path in folder.rglob("*") if path.is_file() and path.name != "lock")
    assert left == sorted(but)
    assert not (folder / "cifar-10-batches-bin").exists()
    assert not list(folder.rglob("unpacked"))
