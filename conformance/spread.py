"""Cases on the workers of a Dask cluster.  Those of a worker that is lost run again on another one."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from torchmux.registry.errors import TorchmuxError

from . import report
from .outcome import Result
from .runner import CaseRunner

LOCAL = "local"
"""In place of a scheduler's address: a cluster of processes on this machine."""

_own = threading.local()
_all: list[CaseRunner] = []


@contextlib.contextmanager
def cluster(scheduler: str, workers: int) -> Iterator[Any]:
    """A client of the scheduler at an address, or of so many processes on this machine if that is ``LOCAL``.

    Raises:
        TorchmuxError: Dask is not installed.
        OSError: there is no scheduler.
    """
    try:
        from distributed import Client, LocalCluster
    except ImportError:
        raise TorchmuxError("--scheduler needs Dask, which is not installed: pip install 'torchmux[tune]'.") from None
    if scheduler != LOCAL:
        with Client(scheduler) as client:
            yield client
        return
    with (
        LocalCluster(n_workers=workers, threads_per_worker=1, dashboard_address=":0") as local,
        Client(local) as client,
    ):
        yield client


def results(client: Any, names: Sequence[str], head: Mapping[str, Any], seconds: float) -> Iterator[Result]:
    """The results of cases as they arrive.  Each thread of a Dask worker runs one case at a time in its own process.

    Raises:
        TorchmuxError: a worker has other versions than this process, so that its results would be those of another run.
    """
    from distributed import as_completed

    ours = _versions()
    for address, theirs in client.run(_versions).items():
        if theirs != ours:
            raise TorchmuxError(
                f"the worker {address} has {theirs}, this process has {ours}: results would not compare"
            )
    text = json.dumps(dict(head))
    futures = client.map(_case, names, head=text, seconds=seconds, pure=False)
    try:
        for _, found in as_completed(futures, with_results=True):
            yield Result.from_json(found)
    finally:
        client.cancel(futures)
        client.run(_close)


def _versions() -> dict[str, str]:
    return {name: value for name, value in report.environment().items() if name != "processor"}


def _case(name: str, head: str, seconds: float) -> dict[str, Any]:
    """On a worker: the result of one case, in the process that this thread keeps for the run."""
    if getattr(_own, "head", None) != head:
        if old := getattr(_own, "runner", None):
            old.close()
        _own.head, _own.runner = head, CaseRunner(json.loads(head))
        _all.append(_own.runner)
    return _own.runner.run(name, seconds).to_json()


def _close() -> None:
    while _all:
        _all.pop().close()
    _own.__dict__.clear()
