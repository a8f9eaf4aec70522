"""``torchmux cache``: shows, empties, exports and imports the artifact cache."""

from __future__ import annotations

import argparse
import json
import os
import stat
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.table import Table

from torchmux.config import config

from .files import check_writable
from .screen import show

if TYPE_CHECKING:
    from torchmux.backends.common.cache.cache import ArtifactCache

_DESCRIPTION = """\
Show, empty, export or import the artifact cache. Artifacts run as code: import only files whose code you would run.

Exit status: 0 for success; 1 if caching is off, the folder is open to others, or a file was not written by export;
2 for incorrect usage, or a file that cannot be read or written.
"""


def add_to(commands: Any) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "cache",
        help="show, empty, export or import the artifact cache",
        description=_DESCRIPTION,
    )
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)
    about = {
        "info": "show its folder, its size, and whether the folder is private",
        "clear": "remove all files in it",
        "export": "write all artifacts to a file",
        "import": "add the artifacts in a file that export wrote",
    }
    for name, text in about.items():
        action = actions.add_parser(name, help=text, description=text.capitalize() + ".")
        if name in ("export", "import"):
            action.add_argument("file", metavar="FILE")
        action.add_argument("--json", action="store_true", help="print JSON")
        action.set_defaults(run=run, action=name)


def run(arguments: argparse.Namespace) -> int:
    """Run one action.

    Raises:
        TorchmuxError: the folder is open to others, or a file was not written by ``export``.
    """
    from torchmux.backends.common.cache.cache import default_cache

    cache = default_cache()
    if cache is None:
        print("torchmux: caching is off: config.cache_enabled is False", file=sys.stderr)
        return 1
    try:
        told = _ACTIONS[arguments.action](cache, arguments)
    except OSError as error:
        print(f"torchmux: cannot {arguments.action} the cache: {error}", file=sys.stderr)
        return 2
    if arguments.json:
        print(json.dumps(told, indent=2))
    else:
        show(_table(told))
    return 0 if told.get("safe", True) else 1


def _info(cache: ArtifactCache, arguments: argparse.Namespace) -> dict[str, Any]:
    entries = cache.entries()
    beside = [found for folder in cache.beside for found in _files(folder)]
    used = [found.st_mtime for found in entries.values()]
    return {
        "folder": str(cache.folder),
        "safe": _is_safe(cache.folder),
        "artifacts": len(entries),
        "bytes": sum(found.st_size for found in entries.values()),
        "other_files": len(beside),
        "other_bytes": sum(found.st_size for found in beside),
        "limit": config.cache_size_limit,
        "oldest_use": _date(min(used)) if used else None,
        "newest_use": _date(max(used)) if used else None,
    }


def _clear(cache: ArtifactCache, arguments: argparse.Namespace) -> dict[str, Any]:
    files, size = cache.clear()
    return {"folder": str(cache.folder), "removed_files": files, "removed_bytes": size}


def _export(cache: ArtifactCache, arguments: argparse.Namespace) -> dict[str, Any]:
    from torchmux.backends.common.cache.artifacts import packed

    check_writable(arguments.file)
    found = packed(cache, sorted(cache.entries()))
    if found is None:
        raise OSError(f"there are no artifacts in {cache.folder}")
    content, names = found
    Path(arguments.file).write_bytes(content)
    return {"file": arguments.file, "artifacts": len(names), "bytes": len(content)}


def _import(cache: ArtifactCache, arguments: argparse.Namespace) -> dict[str, Any]:
    from torchmux.backends.common.cache.artifacts import load_cache_artifacts

    names = load_cache_artifacts(Path(arguments.file).read_bytes())
    return {"folder": str(cache.folder), "artifacts": len(names or ())}


_ACTIONS = {"info": _info, "clear": _clear, "export": _export, "import": _import}


def _is_safe(folder: Path) -> bool:
    try:
        found = folder.stat()
    except FileNotFoundError:
        return True  # it is created, private, with the first artifact
    return found.st_uid == os.geteuid() and not stat.S_IMODE(found.st_mode) & 0o077


def _files(folder: Path) -> list[os.stat_result]:
    return [path.lstat() for path in folder.rglob("*") if path.is_file()]


def _date(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds))


def _table(told: dict[str, Any]) -> Table:
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in told.items():
        text = {True: "yes", False: "no: remove or move the folder", None: "-"}[value] if name == "safe" else str(value)
        if name.endswith("bytes") or name == "limit":
            text = f"{value} ({value / 2**20:.1f} MiB)"
        table.add_row(name.replace("_", " "), "-" if value is None else text)
    return table
