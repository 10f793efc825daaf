"""Official data by name: fetched, resumed where it broke off, compared by SHA-256, unpacked safely, or not there.

A download waits as NAME.part until it is whole. What is unpacked lies in a hidden folder until all of it is there,
and is then renamed into place. A digest is in the table only where it is published and known for certain; where it
is not, the one that was seen is said, and gzip's own checksum is the only check.
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
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TypeAlias

from mgrade._files import lock
from mgrade.tasks.unpack import unpack_gzip, unpack_tar

Progress: TypeAlias = Callable[[int, "int | None"], None]
"""Told how many bytes there are, and how many there will be if that is known."""

_BLOCK = 2**20
_ATTEMPTS = 5
_SECONDS = 60.0
_GIB = 2**30
# Errors of the disk, which another attempt would only meet again.
_OF_THE_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EISDIR, errno.EROFS)


@dataclass(frozen=True)
class Remote:
    """A file to download, and its SHA-256 if it is known."""

    address: str
    sha256: str | None = None

    @property
    def name(self) -> str:
        """The last part of the address."""
        return PurePosixPath(urllib.parse.urlsplit(self.address).path).name


@dataclass(frozen=True)
class Source:
    """Files that belong together, and where they go in the data folder."""

    title: str
    remotes: tuple[Remote, ...]
    kind: str
    """`tar.gz` (unpacked, without the folders that are around everything), `gz` (unpacked) or `file` (as it is)."""
    places: dict[str, str]
    """Folders in what is unpacked, and what they are called in the data folder; `` for all of it."""
    needs: tuple[str, ...]
    """What tasks read, as paths in the data folder; it may also lie there packed by gzip."""
    limit: int
    """Bytes that a download, and what is unpacked from it, may have at most."""
    compact: tuple[str, ...] = ()
    """Files of the data folder that tasks read in its place."""
    compact_for: str | None = None
    """The only task that does, if others cannot."""

    def missing(self, folder: Path, place: str = "") -> list[str]:
        """What is needed and not there; of one place, or of all."""
        needs = [need for need in self.needs if need.startswith(place)]
        return [need for need in needs if not any((folder / f"{need}{end}").exists() for end in ("", ".gz"))]


_MNIST = "https://storage.googleapis.com/cvdf-datasets/mnist/"
_SPEECH = "https://storage.googleapis.com/download.tensorflow.org/data/"
_IMDB = "https://ai.stanford.edu/~amaas/data/sentiment/"
_CIFAR = "https://www.cs.toronto.edu/~kriz/"
_LRA = "https://storage.googleapis.com/long-range-arena/"
_SHD = "https://zenkelab.org/datasets/"
_FSDD = "https://github.com/Jakobovski/free-spoken-digit-dataset/archive/refs/tags/"

SOURCES: dict[str, Source] = {
    "cifar10": Source(
        title="CIFAR-10, binary version",
        remotes=(
            Remote(
                _CIFAR + "cifar-10-binary.tar.gz",
                "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
            ),
        ),
        kind="tar.gz",
        places={"": "cifar-10-batches-bin"},
        needs=tuple(
            f"cifar-10-batches-bin/{name}.bin"
            for name in (*(f"data_batch_{number}" for number in range(1, 6)), "test_batch")
        ),
        limit=_GIB,
        compact=("cifar10_gray.npz",),
        compact_for="image",
    ),
    "mnist": Source(
        title="MNIST handwritten digits",
        remotes=(
            Remote(
                _MNIST + "train-images-idx3-ubyte.gz",
                "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
            ),
            Remote(
                _MNIST + "train-labels-idx1-ubyte.gz",
                "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
            ),
            Remote(
                _MNIST + "t10k-images-idx3-ubyte.gz",
                "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
            ),
            Remote(
                _MNIST + "t10k-labels-idx1-ubyte.gz",
                "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
            ),
        ),
        kind="file",
        places={"": "mnist"},
        needs=tuple(
            f"mnist/{part}-{kind}-ubyte" for part in ("train", "t10k") for kind in ("images-idx3", "labels-idx1")
        ),
        limit=_GIB // 8,
        compact=("mnist.npz",),
    ),
    "imdb": Source(
        title="Large Movie Review Dataset (IMDB)",
        remotes=(
            Remote(_IMDB + "aclImdb_v1.tar.gz", "c40f74a18d3b61f90feba1e17730e0d38e8b97c05fde7008942e91923d1658fe"),
        ),
        kind="tar.gz",
        places={"": "aclImdb"},
        needs=tuple(f"aclImdb/{part}/{label}" for part in ("train", "test") for label in ("pos", "neg")),
        limit=4 * _GIB,
        compact=("imdb.npz",),
    ),
    "lra": Source(
        title="Long Range Arena: ListOps, Retrieval (AAN), Pathfinder, Path-X",
        remotes=(Remote(_LRA + "lra_release.gz"),),
        kind="tar.gz",
        places={
            "listops-1000": "listops",
            "tsv_data": "aan",
            "pathfinder32": "pathfinder32",
            "pathfinder128": "pathfinder128",
        },
        needs=(
            *(f"listops/basic_{part}.tsv" for part in ("train", "val", "test")),
            *(f"aan/new_aan_pairs.{part}.tsv" for part in ("train", "eval", "test")),
            *(f"pathfinder{size}/curv_contour_length_14" for size in (32, 128)),
        ),
        limit=64 * _GIB,
    ),
    "speech_commands": Source(
        title="Speech Commands v0.02, 35 words",
        remotes=(
            Remote(
                _SPEECH + "speech_commands_v0.02.tar.gz",
                "af14739ee7dc311471de98f5f9d2c9191b18aedfe957f4a6ff791c709868ff58",
            ),
        ),
        kind="tar.gz",
        places={"": "speech_commands"},
        needs=tuple(
            f"speech_commands/{name}" for name in ("validation_list.txt", "testing_list.txt", "backward", "yes", "zero")
        ),
        limit=8 * _GIB,
        compact=("speech10_train.npz", "speech10_val_test.npz"),
        compact_for="speech10",
    ),
    "shd": Source(
        title="Spiking Heidelberg Digits",
        remotes=(Remote(_SHD + "shd_train.h5.gz"), Remote(_SHD + "shd_test.h5.gz")),
        kind="gz",
        places={"": "shd"},
        needs=("shd/shd_train.h5", "shd/shd_test.h5"),
        limit=4 * _GIB,
    ),
    "fsdd": Source(
        title="Free Spoken Digit Dataset v1.0.10",
        remotes=(Remote(_FSDD + "v1.0.10.tar.gz"),),
        kind="tar.gz",
        places={"": "fsdd"},
        needs=("fsdd/recordings",),
        limit=_GIB,
        compact=("fsdd_8k.npz",),
    ),
}


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
    """Gets a source into its places in the data folder, and returns them; does nothing if they are there.

    address: of a mirror: the file, or the folder where a source has several files. sha256: of that file.
    pause: seconds before the second attempt; twice as long before each one after it.
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
                    part.unlink()  # they would fail again
                raise
    except OSError as error:
        raise ValueError(f"{name} into {folder}: {error}") from None
    return list(places.values())


def download(address: str, part: Path, *, limit: int, progress: Progress | None = None, pause: float = 1.0) -> None:
    """Downloads to the file `part`, going on after what it already holds if the server can; tries again when cut off.

    It gives up after five attempts in a row that brought nothing new.
    """
    _check_address(address)
    best, failures = -1, 0
    while True:
        try:
            if _attempt(address, part, limit, progress):
                return
            reason = "the connection was cut"
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
            raise ValueError(f"{address}: {reason}, {_ATTEMPTS} times in a row; {size} bytes wait in {part}")
        time.sleep(pause * 2 ** (failures - 1))


def _check_address(address: str) -> None:
    try:
        parts = urllib.parse.urlsplit(address)
        fits = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:  # of what it cannot take apart
        fits = False
    if not fits or not address.isascii() or not address.isprintable() or " " in address:
        raise ValueError(f"address must begin with http:// or https:// and a host, all of it ASCII, got {address!r}")


def _attempt(address: str, part: Path, limit: int, progress: Progress | None) -> bool:
    """One connection; whether the file is whole after it."""
    have = part.stat().st_size if part.exists() else 0
    headers = {"User-Agent": "mgrade"} | ({"Range": f"bytes={have}-"} if have else {})
    try:
        response = urllib.request.urlopen(urllib.request.Request(address, headers=headers), timeout=_SECONDS)
    except urllib.error.HTTPError as error:
        if error.code != 416:  # 416: nothing lies behind what we have
            raise
        error.close()
        if error.headers.get("Content-Range", "").rpartition("/")[2] == str(have):
            return True
        part.unlink(missing_ok=True)
        return False
    except ValueError as error:  # of a host that is no name, here or where a server sends us
        raise ValueError(f"{address} cannot be opened: {error}") from None
    with response:
        goes_on = response.status == 206 and response.headers.get("Content-Range", "").startswith(f"bytes {have}-")
        if response.status == 206 and not goes_on:
            part.unlink(missing_ok=True)
            return False
        have = have if goes_on else 0
        length = response.headers.get("Content-Length", "")
        total = have + int(length) if length.isascii() and length.isdigit() else None
        if max(have, total or 0) > limit:
            raise ValueError(f"{address}: it must have at most {limit} bytes, the server says {total}")
        with open(part, "ab" if goes_on else "wb") as file:
            while block := response.read1(_BLOCK):  # what has come, even if no more will
                have += len(block)
                if have > limit:
                    raise ValueError(f"{address}: it must have at most {limit} bytes, more came")
                file.write(block)
                if progress:
                    progress(have, total)
    return total is None or have == total


def _remotes(name: str, source: Source, address: str | None, sha256: str | None) -> list[Remote]:
    """The files of a source, from another address or with another digest if given."""
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
    """A hidden folder for one process to work in: only downloads outlive a failure, if there are any."""
    workshop = folder / f".fetch-{name}"
    workshop.mkdir(parents=True, exist_ok=True)
    held = lock(workshop / "lock")
    if held is None:
        raise ValueError(f"{workshop}: another process is fetching {name}")
    with held:
        unpacked = workshop / "unpacked"
        shutil.rmtree(unpacked, ignore_errors=True)  # of a process that was killed
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
        say(f"{remote.name}: SHA-256 {seen}; no published digest is known, so it could not be compared")
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
    """Into place, if all that is needed is there."""
    ready = unpacked / "ready"
    ready.mkdir()
    for inside, place in source.places.items():
        depths = ("*/" * depth + inside for depth in range(4)) if inside else ()
        found = [path for pattern in depths for path in (unpacked / "all").glob(pattern)]
        if found or not inside:
            wanted = [need.removeprefix(f"{place}/") for need in source.needs]
            os.replace(found[0] if found else _innermost(unpacked / "all", wanted), ready / place)
    if missing := source.missing(ready):
        raise ValueError(f"{name}: what was unpacked has no {missing[0]}")
    for place in source.places.values():
        if not (folder / place).exists():
            os.replace(ready / place, folder / place)


def _innermost(folder: Path, wanted: Sequence[str]) -> Path:
    """The first folder, going down, that holds something wanted, or something else than one folder."""
    inside = list(folder.iterdir())
    if len(inside) != 1 or not inside[0].is_dir() or any((folder / name).exists() for name in wanted):
        return folder
    return _innermost(inside[0], wanted)
