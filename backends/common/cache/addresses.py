"""Files at an address that several machines share: a folder, or whatever fsspec knows."""

from __future__ import annotations

import contextlib
import os
import secrets
from pathlib import Path
from typing import Protocol

from torchmux.registry.errors import TorchmuxError


class Files(Protocol):
    """The three things that are done at an address; each may raise any exception."""

    def read(self, name: str) -> bytes | None:
        """The file, or None if there is none."""

    def write(self, name: str, content: bytes) -> None:
        """Make or replace a file, at once where the file system can."""

    def create(self, name: str, content: bytes) -> bool:
        """Make a file, unless there is one; whether it was made."""

    def remove(self, name: str) -> None:
        """Remove a file, if it is there."""


class Folder:
    """A folder of this machine, or one that is mounted."""

    def __init__(self, path: Path, most: int) -> None:
        self.path, self.most = path, most
        path.mkdir(parents=True, exist_ok=True)

    def read(self, name: str) -> bytes | None:
        try:
            with open(os.open(self.path / name, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
                return file.read(self.most + 1)
        except FileNotFoundError:
            return None

    def write(self, name: str, content: bytes) -> None:
        partial = self._partial(content)
        try:
            os.replace(partial, self.path / name)
        except BaseException:
            partial.unlink(missing_ok=True)
            raise

    def create(self, name: str, content: bytes) -> bool:
        partial = self._partial(content)
        try:
            os.link(partial, self.path / name)  # unlike an exclusive open, this shows the content at once
        except FileExistsError:
            return False
        except OSError:  # a file system without links
            return self._create_open(name, content)
        finally:
            partial.unlink(missing_ok=True)
        return True

    def _create_open(self, name: str, content: bytes) -> bool:
        try:
            with open(self.path / name, "xb") as file:
                file.write(content)
        except FileExistsError:
            return False
        return True

    def remove(self, name: str) -> None:
        (self.path / name).unlink(missing_ok=True)

    def _partial(self, content: bytes) -> Path:
        partial = self.path / f".partial-{secrets.token_hex(8)}"
        partial.write_bytes(content)
        return partial


class Remote:
    """An address of fsspec.

    Object stores show a file at once or not at all.  Where a system shows one that is being written, whoever reads must
    notice that it is not whole.
    """

    def __init__(self, address: str, most: int) -> None:
        self.most = most
        try:
            from fsspec.core import url_to_fs
        except ImportError:
            raise TorchmuxError(
                f"{address} needs fsspec, which is not installed: python -m pip install 'torchmux[fsspec]'."
            ) from None
        self.system, self.path = url_to_fs(address)
        self.system.makedirs(self.path, exist_ok=True)

    def read(self, name: str) -> bytes | None:
        self.system.invalidate_cache()  # others write
        try:
            content: bytes = self.system.cat_file(self._at(name), end=self.most + 1)
        except FileNotFoundError:
            return None
        return content

    def write(self, name: str, content: bytes) -> None:
        self.system.pipe_file(self._at(name), content)

    def create(self, name: str, content: bytes) -> bool:
        self.system.invalidate_cache()
        if self.system.exists(self._at(name)):
            return False
        try:
            self.system.pipe_file(self._at(name), content, mode="create")
        except FileExistsError:
            return False
        except (TypeError, ValueError, NotImplementedError):  # this file system cannot
            self.system.pipe_file(self._at(name), content)
        return self.read(name) == content  # otherwise someone was quicker

    def remove(self, name: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            self.system.rm_file(self._at(name))

    def _at(self, name: str) -> str:
        return f"{self.path.rstrip('/')}/{name}"


def files_at(address: str, most: int = 1 << 24) -> Files:
    """The files of a folder, or of an address with a protocol; an unusable one raises any exception.

    At most one byte more than ``most`` is read of a file.
    """
    path = address.removeprefix("file://")
    return Remote(address, most) if "://" in path else Folder(Path(path).expanduser(), most)
