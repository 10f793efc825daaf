"""Archives from elsewhere, unpacked without trusting them: what is not a plain file in its place is refused."""

from __future__ import annotations

import gzip
import shutil
import tarfile
import zlib
from collections.abc import Collection
from pathlib import Path, PurePosixPath
from typing import IO

_BLOCK = 2**20
MOST_MEMBERS = 5_000_000


def unpack_gzip(path: Path, target: Path, *, name: str, limit: int) -> None:
    """Unpacks one file; name: of the archive, for errors; limit: bytes it may come to."""
    try:
        with gzip.open(path) as stream, open(target, "xb") as file:
            _copy(stream, file, limit, name)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise ValueError(f"{name}: not a whole gzip file: {error}") from None


def unpack_tar(path: Path, target: Path, *, name: str, limit: int, only: Collection[str] = ()) -> None:
    """Unpacks a tar archive packed by gzip into the folder `target`, which is to be thrown away if this fails.

    Plain files and folders are all that it may hold. limit: bytes of all members together. only: members are
    written if they lie in a folder of such a name; all of them are if it is empty.
    """
    try:
        with gzip.open(path) as stream:
            with tarfile.open(fileobj=stream, mode="r|", bufsize=_BLOCK) as archive:
                _members(archive, target, name, limit, only)
            _copy(stream, None, limit, name)  # on to the end, where gzip's checksum is
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise ValueError(f"{name}: not a whole gzip file: {error}") from None
    except tarfile.TarError as error:
        raise ValueError(f"{name}: not a whole tar archive: {error}") from None


def _members(archive: tarfile.TarFile, target: Path, name: str, limit: int, only: Collection[str]) -> None:
    total = count = 0
    while (member := archive.next()) is not None:
        archive.members.clear()  # type: ignore[attr-defined]  # a list of millions would fill the memory
        total, count = total + member.size, count + 1
        if total > limit or count > MOST_MEMBERS:
            bound = f"{limit} bytes in {MOST_MEMBERS} members"
            raise ValueError(f"{name}: member {member.name!r} goes beyond {bound}, the most that is unpacked")
        path = _place(name, member, target)
        if not only or not set(path.parts).isdisjoint(only):
            _write(archive, member, target / path, name)


def _place(name: str, member: tarfile.TarInfo, target: Path) -> PurePosixPath:
    """Where a member goes under the target: only plain files and folders, by relative paths without `..`."""
    path, reason = PurePosixPath(member.name), ""
    if member.issym() or member.islnk():
        reason = f"is a link to {member.linkname!r}"
    elif not (member.isreg() or member.isdir()) or member.issparse():
        reason = "is neither a plain file nor a folder"
    elif path.is_absolute() or ".." in path.parts or "\\" in member.name or not member.name.isprintable():
        reason = "has a path that may lead out of the folder"
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
        raise ValueError(f"{name}: member {member.name!r} is in the place of another") from None


def _copy(stream: gzip.GzipFile, file: IO[bytes] | None, limit: int, name: str) -> None:
    total = 0
    while block := stream.read(_BLOCK):
        total += len(block)
        if total > limit:
            raise ValueError(f"{name}: it unpacks to more than {limit} bytes, the most that is unpacked")
        if file:
            file.write(block)
