"""Official data by name: downloads that resume, are compared by SHA-256 and unpacked safely, or leave nothing.

A download is named NAME.part until it is complete. Unpacked files stay in a hidden folder until all are there, and are
then renamed into place. If no digest is known, the actual one is reported, and gzip's own checksum is the only check.
"""

from __future__ import annotations

import errno
import hashlib
import http.client
import os
import shutil
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeAlias

from mgrade._files import lock
from mgrade.tasks.sources import SOURCES, Remote, Source
from mgrade.tasks.unpack import unpack_gzip, unpack_tar

Progress: TypeAlias = Callable[[int, "int | None"], None]
"""Receives the number of bytes so far, and the total if it is known."""

_BLOCK = 2**20
_ATTEMPTS = 5
_SECONDS = 60.0
# Errors of the disk, which another attempt would not cure.
_OF_THE_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EISDIR, errno.EROFS)


def fetch(
    name: str,
    folder: Path,
    address: str | None = None,
    sha256: str | None = None,
    progress: Progress | None = None,
    *,
    say: Callable[[str], None] = print,
    pause: float = 1.0,
) -> list[Path]:
    """Downloads a source to its places in the data folder, and returns them; does nothing if they exist.

    address: of a mirror: the file, or the folder if the source has several files. sha256: of that file.
    pause: seconds before the second attempt; doubles before each further one.
    """
    if name not in SOURCES:
        raise ValueError(f"name must be one of {', '.join(SOURCES)}, got {name!r}")
    source = SOURCES[name]
    remotes = _remotes(name, source, address, sha256)
    places = {inside: folder / place for inside, place in source.places.items()}
    for place in places.values():
        if place.exists() and (missing := source.missing(folder, f"{place.name}/")):
            raise ValueError(f"{place} is there but {missing[0]} is not; move it away and fetch {name} again")
    if all(place.exists() for place in places.values()):
        return list(places.values())
    try:
        with _workshop(name, folder) as workshop:
            for remote in remotes:
                part = workshop / f"{remote.name}.part"
                download(remote.address, part, limit=source.limit, progress=progress, pause=pause)
            try:
                for remote in remotes:
                    part = workshop / f"{remote.name}.part"
                    _compare(part, remote, say)
                    _unpack(source, part, remote.name, workshop / "unpacked")
                _move(name, source, workshop / "unpacked", folder)
            except ValueError:
                for part in workshop.glob("*.part"):
                    part.unlink()  # it would fail again
                raise
    except OSError as error:
        raise ValueError(f"{name} into {folder}: {error}") from None
    return list(places.values())


def download(address: str, part: Path, *, limit: int, progress: Progress | None = None, pause: float = 1.0) -> None:
    """Downloads to the file `part`; resumes after its content if the server allows, and retries after interruptions.

    Gives up after five attempts in a row without progress.
    """
    _check_address(address)
    best, failures = -1, 0
    while True:
        try:
            if _attempt(address, part, limit, progress):
                return
            reason = "the connection was closed early"
        except urllib.error.HTTPError as error:
            error.close()
            reason = f"HTTP status {error.code} {error.reason}"
            if error.code < 500 and error.code not in (408, 429):
                raise ValueError(f"{address}: {reason}") from None
        except (http.client.HTTPException, OSError) as error:
            if isinstance(error, OSError) and error.errno in _OF_THE_DISK:
                raise ValueError(f"{part} cannot be written: {error.strerror}") from None
            reason = str(getattr(error, "reason", error)) or type(error).__name__
        size = part.stat().st_size if part.exists() else 0
        failures = 1 if size > best else failures + 1
        best = max(best, size)
        if failures == _ATTEMPTS:
            waiting = f"; {size} bytes are kept in {part}" if size else ""
            raise ValueError(f"{address}: {reason}, {_ATTEMPTS} times in a row{waiting}")
        time.sleep(pause * 2 ** (failures - 1))


def _check_address(address: str) -> None:
    try:
        parts = urllib.parse.urlsplit(address)
        known = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
        fits = known and "@" not in parts.netloc
    except ValueError:  # it cannot be parsed
        fits = False
    if not fits or not address.isascii() or not address.isprintable() or " " in address:
        raise ValueError(
            f"address must be ASCII and begin with http:// or https:// and a host, without a user, got {address!r}"
        )


def _attempt(address: str, part: Path, limit: int, progress: Progress | None) -> bool:
    """Downloads over one connection; whether the file is complete."""
    have = part.stat().st_size if part.exists() else 0
    headers = {"User-Agent": "mgrade"} | ({"Range": f"bytes={have}-"} if have else {})
    try:
        response = urllib.request.urlopen(urllib.request.Request(address, headers=headers), timeout=_SECONDS)
    except urllib.error.HTTPError as error:
        if error.code != 416:  # 416: there are no further bytes
            raise
        error.close()
        if error.headers.get("Content-Range", "").rpartition("/")[2] == str(have):
            return True
        part.unlink(missing_ok=True)
        return False
    except ValueError as error:  # an invalid host, here or in a redirect
        raise ValueError(f"{address} cannot be opened: {error}") from None
    with response:
        given = response.headers.get("Content-Range", "")
        goes_on = response.status == 206 and given.startswith(f"bytes {have}-")
        if response.status == 206 and not goes_on:
            part.unlink(missing_ok=True)
            return False
        have = have if goes_on else 0
        total = _whole_size(have, given if goes_on else "", response.headers.get("Content-Length", ""))
        if max(have, total or 0) > limit:
            raise ValueError(f"{address}: it must have at most {limit} bytes, the server announces {total}")
        with open(part, "ab" if goes_on else "wb") as file:
            while block := response.read1(_BLOCK):  # returns what has arrived, even if the rest never does
                have += len(block)
                if have > limit:
                    raise ValueError(f"{address}: it must have at most {limit} bytes, got more")
                file.write(block)
                if progress:
                    progress(have, total)
    return total is None or have == total


def _whole_size(have: int, given: str, length: str) -> int | None:
    """Bytes of the whole file according to the response's headers, if known; a response may cover only a part."""
    for text, before in ((given.rpartition("/")[2], 0), (length, have)):
        if text.isascii() and text.isdigit() and len(text) < 20:
            return before + int(text)
    return None


def _remotes(name: str, source: Source, address: str | None, sha256: str | None) -> list[Remote]:
    """The files of a source, with another address or digest if given."""
    several = len(source.remotes) > 1
    if sha256 is not None:
        if several:
            raise ValueError(f"sha256 must be left out for {name}, which has {len(source.remotes)} files")
        if len(sha256) != 64 or set(sha256.lower()) - set("0123456789abcdef"):
            raise ValueError(f"sha256 must be 64 hexadecimal digits, got {sha256!r}")
    remotes = []
    for remote in source.remotes:
        if address is not None:
            _check_address(address)
        where = remote.address if address is None else f"{address.rstrip('/')}/{remote.name}" if several else address
        remotes.append(Remote(where, sha256.lower() if sha256 else remote.sha256))
    return remotes


@contextmanager
def _workshop(name: str, folder: Path) -> Iterator[Path]:
    """A hidden working folder, locked for one process; after a failure, only downloads remain in it."""
    workshop = folder / f".fetch-{name}"
    workshop.mkdir(parents=True, exist_ok=True)
    held = lock(workshop / "lock")
    if held is None:
        raise ValueError(f"{workshop}: another process is fetching {name}")
    with held:
        unpacked = workshop / "unpacked"
        shutil.rmtree(unpacked, ignore_errors=True)  # left by a killed process
        unpacked.mkdir()
        try:
            yield workshop
        except BaseException:
            shutil.rmtree(unpacked, ignore_errors=True)
            if os.listdir(workshop) == ["lock"]:
                shutil.rmtree(workshop)
            raise
        shutil.rmtree(workshop)


def _compare(part: Path, remote: Remote, say: Callable[[str], None]) -> None:
    digest = hashlib.sha256()
    with open(part, "rb") as file:
        while block := file.read(_BLOCK):
            digest.update(block)
    seen = digest.hexdigest()
    if remote.sha256 is None:
        say(f"{remote.name}: SHA-256 {seen}; not compared, since no published digest is known")
    elif seen != remote.sha256:
        raise ValueError(f"{remote.name} from {remote.address}: SHA-256 must be {remote.sha256}, got {seen}")


def _unpack(source: Source, part: Path, name: str, unpacked: Path) -> None:
    target = unpacked / "all"
    target.mkdir(exist_ok=True)
    if source.kind == "file":
        shutil.copyfile(part, target / name)
    elif source.kind == "gz":
        unpack_gzip(part, target / name.removesuffix(".gz"), name=name, limit=source.limit)
    else:
        unpack_tar(part, target, name=name, limit=source.limit, only=[inside for inside in source.places if inside])


def _move(name: str, source: Source, unpacked: Path, folder: Path) -> None:
    """Moves unpacked files into place if nothing is missing."""
    ready = unpacked / "ready"
    ready.mkdir()
    for inside, place in source.places.items():
        depths = ("*/" * depth + inside for depth in range(4)) if inside else ()
        found = [path for pattern in depths for path in (unpacked / "all").glob(pattern)]
        if found or not inside:
            wanted = [need.removeprefix(f"{place}/") for need in source.needs]
            os.replace(found[0] if found else _innermost(unpacked / "all", wanted), ready / place)
    if missing := source.missing(ready):
        raise ValueError(f"{name}: the unpacked files lack {missing[0]}")
    for place in source.places.values():
        if not (folder / place).exists():
            os.replace(ready / place, folder / place)


def _innermost(folder: Path, wanted: Sequence[str]) -> Path:
    """The outermost folder that holds a wanted file, or anything other than a single folder."""
    inside = list(folder.iterdir())
    if len(inside) != 1 or not inside[0].is_dir() or any((folder / name).exists() for name in wanted):
        return folder
    return _innermost(inside[0], wanted)
