"""Archives that are hostile, damaged or too large are refused, and nothing of them stays."""

import gzip
import tarfile

import pytest

from archives import BATCHES, GOOD, PLAIN, assert_nothing, chained, entry, extended, field, get, negative, serving, tar
from mgrade.tasks import unpack


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch):
    monkeypatch.setenv("no_proxy", "*")


HOSTILE = {
    "a path upwards": ([("../../outside", b"x")], "'cifar-10-batches-bin/../../outside' has a path that may lead out"),
    "an absolute path": (
        [entry("/etc/outside", tarfile.REGTYPE)],
        "member '/etc/outside' has a path that may lead out",
    ),
    "a symbolic link": ([entry("link", tarfile.SYMTYPE, "/etc")], "member 'link' is a link to '/etc'"),
    "a hard link": ([entry("link", tarfile.LNKTYPE, "../secret")], "member 'link' is a link to '../secret'"),
    "less than nothing": ([negative("less")], "member 'less' has -1 bytes"),
    "a device": ([entry("null", tarfile.CHRTYPE)], "member 'null' is neither a plain file nor a folder"),
    "a pipe": ([entry("pipe", tarfile.FIFOTYPE)], "member 'pipe' is neither a plain file nor a folder"),
    "a name twice": ([BATCHES[0]], r"data_batch_1.bin' has the place of another"),
    "a path too deep": (
        [("a/" * 60 + "b", b"x")],
        "has a path of more than 50 parts, or of more than 255 bytes in one",
    ),
    "a name too long": ([("a" * 256, b"x")], "has a path of more than 50 parts, or of more than 255 bytes in one"),
    "a file as a folder": ([(f"{BATCHES[0][0]}/x", b"x")], r"data_batch_1.bin/x' has the place of another"),
}


@pytest.mark.parametrize("members", HOSTILE)
def test_hostile_archives_are_refused_whole(tmp_path, members):
    extra, message = HOSTILE[members]
    data = tar([*BATCHES, *extra])
    folder = tmp_path / "data"
    with serving(a=data) as server, pytest.raises(ValueError, match=message) as refusal:
        get(server, folder, data)
    assert str(refusal.value).startswith("a: member ")
    assert_nothing(tmp_path)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (GOOD[:-20], "a: not a complete gzip file"),
        (GOOD[: len(GOOD) // 2], "a: not a complete gzip file"),
        (GOOD[:-8] + bytes(8), "a: not a complete gzip file: CRC check failed"),
        (b"<html>not found</html>", "a: not a complete gzip file"),
        (gzip.compress(b"plain text" * 100, mtime=0), "a: not a complete tar archive"),
        (gzip.compress(gzip.decompress(GOOD)[:20000], mtime=0), "a: not a complete tar archive"),
        (gzip.compress(PLAIN[: PLAIN.index(b"test_batch.bin") // 512 * 512]), "a header is invalid: empty header"),
        (gzip.compress(PLAIN[: PLAIN.index(b"test_batch.bin")] + b"!" + PLAIN[-20000:]), "a header is invalid"),
        (gzip.compress(PLAIN[:-10240] + bytes(10240) + PLAIN), "something follows its end"),
        (
            tar([*BATCHES, extended(2**20 + 1)]),
            "a header is extended by 104[0-9]* bytes, the most allowed is 1048576",
        ),
        (chained(tarfile.GNUTYPE_LONGNAME, 9), "a: not a complete tar archive: more than 8 headers extend one another"),
        (chained(tarfile.GNUTYPE_LONGNAME, 3000), "more than 8 headers extend one another"),
        (chained(tarfile.XGLTYPE, 3000, lambda n: field(f"k{n}", "v")), "more than 8 headers extend one another"),
        (chained(tarfile.XGLTYPE, 2, lambda n: field(f"k{n}", "v" * 40000)), "65536 characters extend all headers"),
        (
            chained(tarfile.XGLTYPE, 1, lambda n: b"".join(field(f"k{k}", "v") for k in range(101))),
            "more than 100 fields or 65536 characters extend all headers",
        ),
        (
            chained(tarfile.XHDTYPE, 1, lambda n: field("GNU.sparse.map", "x")),
            "a: not a complete tar archive: a header is",
        ),
        (tar(BATCHES[:5]), "cifar10: the unpacked files lack cifar-10-batches-bin/test_batch.bin"),
    ],
)
def test_damaged_archives_are_refused(tmp_path, data, message):
    with serving(a=data) as server, pytest.raises(ValueError, match=message):
        get(server, tmp_path, data)
    assert_nothing(tmp_path)


def test_too_much_is_refused(tmp_path, monkeypatch):
    target = tmp_path / "target"
    target.mkdir()
    path = tmp_path / "a.tar.gz"
    path.write_bytes(tar([("zeros", bytes(5000))]))
    with pytest.raises(ValueError, match="'cifar-10-batches-bin/zeros' exceeds 4999 bytes"):
        unpack.unpack_tar(path, target, name="a", limit=4999)
    path.write_bytes(gzip.compress(bytes(5000)))
    with pytest.raises(ValueError, match="a: it unpacks to more than 4999 bytes"):
        unpack.unpack_gzip(path, target / "zeros", name="a", limit=4999)
    path.write_bytes(GOOD)
    monkeypatch.setattr(unpack, "MOST_MEMBERS", 3)
    with pytest.raises(ValueError, match="in 3 members"):
        unpack.unpack_tar(path, target, name="a", limit=2**30)
