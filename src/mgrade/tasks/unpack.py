"""Unpacks untrusted archives: anything but plain files and folders in their place is refused."""

from __future__ import annotations

import gzip
import shutil
import tarfile
import zlib
from collections.abc import Collection, Iterator
from pathlib import Path, PurePosixPath
from typing import IO, Any

_BLOCK = 2**20
MOST_MEMBERS = 5_000_000
# Limits: parts of a path, bytes of a name, bytes of a header extension, and extensions of one header in a row.
_DEPTH, _NAME, _EXTENSION, _CHAIN = 50, 255, 2**20, 8
# Limits of extensions that apply to all following headers: fields, and characters.
_FIELDS, _CHARACTERS = 100, 2**16


def read_gzip(path: Path, limit: int) -> bytes:
    """The content of a gzip file, at most `limit` bytes; a failure is a ValueError that names the file."""
    try:
        with gzip.open(path) as stream:
            return b"".join(_blocks(stream, limit, str(path)))
    except (OSError, EOFError, zlib.error) as error:
        raise ValueError(f"{path} cannot be unpacked: {error}") from None


def unpack_gzip(path: Path, target: Path, *, name: str, limit: int) -> None:
    """Unpacks a single file. name: of the archive, for errors; limit: the most bytes to unpack."""
    try:
        with gzip.open(path) as stream, open(target, "xb") as file:
            _copy(stream, file, limit, name)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise ValueError(f"{name}: not a complete gzip file: {error}") from None


def unpack_tar(path: Path, target: Path, *, name: str, limit: int, only: Collection[str] = ()) -> None:
    """Unpacks a gzipped tar archive into the folder `target`, which the caller must discard if this fails.

    The archive may hold only plain files and folders. limit: the most bytes of all members together. only: names of
    folders whose members to unpack; empty for all members.
    """
    try:
        with (
            gzip.open(path) as stream,
            _Archive.open(fileobj=stream, mode="r|", bufsize=_BLOCK, tarinfo=_Member) as archive,
        ):
            _members(archive, target, name, limit, only)
            _end(archive, limit, name)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise ValueError(f"{name}: not a complete gzip file: {error}") from None
    except tarfile.TarError as error:
        raise ValueError(f"{name}: not a complete tar archive: {error}") from None


class _Archive(tarfile.TarFile):
    """Counts the headers that extend the one being read."""

    chained = 0


class _Member(tarfile.TarInfo):
    """A header that is refused if invalid: tarfile would take it for the end of the archive."""

    @classmethod
    def fromtarfile(cls, archive: tarfile.TarFile) -> _Member:
        assert isinstance(archive, _Archive)
        archive.chained += 1  # after an extension, tarfile reads the next header recursively
        try:
            if archive.chained > _CHAIN:
                raise tarfile.ReadError(f"more than {_CHAIN} headers extend one another")
            return super().fromtarfile(archive)
        except ValueError as error:  # an invalid number
            raise tarfile.ReadError(f"a header is invalid: {error}") from None
        finally:
            archive.chained -= 1

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> _Member:
        try:
            found = super().frombuf(buf, encoding, errors)
        except tarfile.EOFHeaderError:  # type: ignore[attr-defined]  # the regular end
            raise
        except tarfile.HeaderError as error:
            raise tarfile.ReadError(f"a header is invalid: {error}") from None
        if not (found.isreg() or found.isdir()) and found.size > _EXTENSION:
            raise tarfile.ReadError(f"a header is extended by {found.size} bytes, the most allowed is {_EXTENSION}")
        return found


def _members(archive: tarfile.TarFile, target: Path, name: str, limit: int, only: Collection[str]) -> None:
    total = count = 0
    while (member := archive.next()) is not None:
        archive.members.clear()  # type: ignore[attr-defined]  # a list of millions would fill the memory
        total, count = total + max(0, member.size), count + 1
        if total > limit or count > MOST_MEMBERS:
            bound = f"{limit} bytes in {MOST_MEMBERS} members"
            raise ValueError(f"{name}: member {member.name!r} exceeds {bound}, the most allowed")
        general = archive.pax_headers
        if len(general) > _FIELDS or sum(map(len, (*general, *general.values()))) > _CHARACTERS:
            bound = f"{_FIELDS} fields or {_CHARACTERS} characters"
            raise ValueError(f"{name}: member {member.name!r}: more than {bound} extend all headers")
        path = _place(name, member, target)
        if not only or not set(path.parts).isdisjoint(only):
            _write(archive, member, target / path, name)


def _place(name: str, member: tarfile.TarInfo, target: Path) -> PurePosixPath:
    """The place of a member under the target: only plain files and folders, with relative paths without `..`."""
    path, reason = PurePosixPath(member.name), ""
    if member.size < 0:
        reason = f"has {member.size} bytes"
    elif member.issym() or member.islnk():
        reason = f"is a link to {member.linkname!r}"
    elif not (member.isreg() or member.isdir()) or member.issparse():
        reason = "is neither a plain file nor a folder"
    elif path.is_absolute() or ".." in path.parts or "\\" in member.name or not member.name.isprintable():
        reason = "has a path that may lead out of the folder"
    elif len(path.parts) > _DEPTH or any(len(part.encode(errors="replace")) > _NAME for part in path.parts):
        reason = f"has a path of more than {_DEPTH} parts, or of more than {_NAME} bytes in one"
    elif hasattr(tarfile, "data_filter"):  # Python 3.10.12, 3.11.4 and later
        try:
            tarfile.data_filter(member, str(target))
        except tarfile.FilterError as error:
            reason = f"is refused by tarfile: {error}"
    if reason:
        raise ValueError(f"{name}: member {member.name!r} {reason}")
    return path


def _write(archive: tarfile.TarFile, member: tarfile.TarInfo, path: Path, name: str) -> None:
    try:
        if member.isdir():
            path.mkdir(parents=True, exist_ok=True)
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        content = archive.extractfile(member)
        assert content is not None  # it is a plain file
        with open(path, "xb") as file:
            shutil.copyfileobj(content, file, _BLOCK)
    except (FileExistsError, NotADirectoryError):
        raise ValueError(f"{name}: member {member.name!r} has the place of another") from None


def _copy(stream: gzip.GzipFile, file: IO[bytes], limit: int, name: str) -> None:
    for block in _blocks(stream, limit, name):
        file.write(block)


def _end(archive: tarfile.TarFile, limit: int, name: str) -> None:
    """Reads to the end, where gzip's checksum is; only zeros may follow."""
    for block in _blocks(archive.fileobj, limit, name):
        if any(block):
            raise ValueError(f"{name}: not a complete tar archive: something follows its end")


def _blocks(stream: Any, limit: int, name: str) -> Iterator[bytes]:
    total = 0
    while block := stream.read(_BLOCK):
        total += len(block)
        if total > limit:
            raise ValueError(f"{name}: it unpacks to more than {limit} bytes, the most allowed")
        yield block
