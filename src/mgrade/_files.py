"""Files that are complete or absent, locks, and JSON descriptions that name their format."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any


def replace(path: Path, data: bytes) -> None:
    """Writes a file under a temporary name, flushes it to the disk, and renames it into place."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")
    try:
        with open(temporary, "xb") as file:  # never writes to an existing file or link
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        if error.errno is not None:
            error.filename = str(path)  # the error of a full disk has no name, and the temporary one means nothing
        raise
    finally:
        temporary.unlink(missing_ok=True)


def check_place(path: Path) -> None:
    """Refuses a path for a file that is a folder, or that lies below a file; creates nothing."""
    if path.is_dir():
        raise ValueError(f"{path}: must be a file, is a folder")
    for folder in path.parents:
        if folder.exists() and not folder.is_dir():
            raise ValueError(f"{folder}: must be a folder, is a file")


def check_own(path: Path, mark: bytes) -> None:
    """Refuses to replace a file that this command did not write: its own files have `mark` near the beginning."""
    try:
        with open(path, "rb") as file:
            begin = file.read(4096)
    except FileNotFoundError:
        return
    except OSError as error:
        raise ValueError(f"{path}: cannot be read: {error.strerror}") from None
    if begin and mark not in begin:
        raise ValueError(f"{path}: was not written by this command: choose another path, or move it away")


def prepare_place(path: Path, mark: bytes = b"") -> None:
    """Makes the folder for a file that takes long to compute, and checks that the file can be written.

    An existing file must have the `mark`: see `check_own`.
    """
    check_place(path)
    check_own(path, mark)
    make_folder(path.parent)
    trial = path.with_name(f".{path.name}.{os.getpid()}.try")
    try:
        replace(trial, b"")
    except OSError as error:
        raise ValueError(f"{path} cannot be written: {error.strerror}") from None
    trial.unlink()


def lock(path: Path) -> IO[bytes] | None:
    """Locks a file until it is closed or the process ends; None if another process holds it.

    Creates the file if it is missing, keeps its content, and does not follow links.
    """
    file = os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666), "r+b")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        return None
    except OSError:  # a file system without locks
        file.close()
        raise
    return file


@contextlib.contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Holds a lock on a folder, after waiting for its other holders; leaves no lock file."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with contextlib.suppress(OSError):  # a file system without locks
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def make_folder(folder: Path) -> None:
    """Makes a folder and its missing parents; a one-line ValueError if that fails."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except FileExistsError:
        raise ValueError(f"{folder}: must be a folder, is a file") from None
    except OSError as error:
        raise ValueError(f"{folder}: cannot be created: {error.strerror}") from None


def reason(error: Exception) -> str:
    """What an error says about a description with missing or wrong parts."""
    return f"{error.args[0]} is missing" if isinstance(error, KeyError) else str(error)


def read_description(path: Path, form: str, version: int, hint: str = "") -> dict[str, Any]:
    """Reads a JSON object that names this format and version; anything else is a one-line ValueError."""
    try:
        description = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ValueError(f"{path}: cannot be read: {error.strerror}{hint}") from None
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path}: is not JSON: {error}") from None
    if not isinstance(description, dict) or description.get("format") != form:
        raise ValueError(f"{path}: format must be {form!r}")
    if description.get("version") != version:
        raise ValueError(f"{path}: version must be {version}, got {description.get('version')!r}")
    return description
