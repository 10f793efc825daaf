"""Files that are whole or not there, and descriptions that say what they are."""

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
        with open(temporary, "xb") as file:  # nobody's file or link of that name is written to
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        if error.errno is not None:
            error.filename = str(path)  # a full disk names none, and nobody knows the temporary one
        raise
    finally:
        temporary.unlink(missing_ok=True)


def check_place(path: Path) -> None:
    """Refuses a place for a file where there is a folder, or below what is a file; nothing is made."""
    if path.is_dir():
        raise ValueError(f"{path}: must be a file, is a folder")
    for folder in path.parents:
        if folder.exists() and not folder.is_dir():
            raise ValueError(f"{folder}: must be a folder, is a file")


def check_own(path: Path, mark: bytes) -> None:
    """Refuses to replace a file that has no `mark` near its beginning, as all have that the same command wrote."""
    try:
        with open(path, "rb") as file:
            begin = file.read(4096)
    except FileNotFoundError:
        return
    except OSError as error:
        raise ValueError(f"{path}: cannot be read: {error.strerror}") from None
    if begin and mark not in begin:
        raise ValueError(f"{path}: holds something else: choose another place, or move it away")


def prepare_place(path: Path, mark: bytes = b"") -> None:
    """Makes the folder of a file that takes long to make, and tries whether it could be written there.

    What lies there must have the `mark`: see `check_own`.
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
    """A file that no other process holds until this one closes it or ends; None where another does.

    It is made if it is not there, its content stays, and a link is not followed.
    """
    file = os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666), "r+b")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        return None
    except OSError:  # a file system that has no locks
        file.close()
        raise
    return file


@contextlib.contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Waits until no other process that asks for it works in a folder; nothing is left there."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with contextlib.suppress(OSError):  # a file system that has no locks
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def make_folder(folder: Path) -> None:
    """Makes a folder and those above it where they are not there; a ValueError in one line where that cannot be."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except FileExistsError:
        raise ValueError(f"{folder}: must be a folder, is a file") from None
    except OSError as error:
        raise ValueError(f"{folder}: cannot be made: {error.strerror}") from None


def reason(error: Exception) -> str:
    """What is wrong with a description whose parts are not as expected."""
    return f"{error.args[0]} is missing" if isinstance(error, KeyError) else str(error)


def read_description(path: Path, form: str, version: int, hint: str = "") -> dict[str, Any]:
    """A JSON object that says it is of this format and version; a ValueError in one line otherwise."""
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
