"""Jobs for every kind of machine in a Dask cluster, and what is kept of a run that is interrupted."""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torchmux.backends.common.cache.cache import ArtifactCache
from torchmux.config import config
from torchmux.registry.errors import TorchmuxError

from .. import decisions
from ..candidates import EAGER
from ..decisions import Decision, Fingerprint
from ..decisions.typed import built
from . import job
from .capture import Captured
from .join import join


@dataclass
class Graph:
    """One graph on one kind of machine: what is to be measured there, and what is known."""

    captured: Captured
    data: Any  # the same, where the workers find it
    workers: list[str]
    fingerprint: Fingerprint
    order: list[str]
    excluded: dict[str, str]
    results: list[dict[str, Any]] = field(default_factory=list)

    @property
    def key(self) -> str:
        return self.fingerprint.key

    def left(self, journal: Journal) -> list[str]:
        """The candidates that no interrupted run has measured; its results are taken over."""
        left = []
        for name in self.order:
            if name == EAGER:
                continue
            kept = journal.load(self.key, name)
            if kept is None:
                left.append(name)
            elif kept not in self.results:
                self.results.append(kept)
        return left


class Journal:
    """Results of jobs by graph, machine and candidate, until all of a run are there.  Killing a run loses none."""

    def __init__(self) -> None:
        self._cache = ArtifactCache(Path(config.cache_dir) / "tuning") if config.cache_enabled else None

    def load(self, key: str, candidate: str) -> dict[str, Any] | None:
        content = self._cache.load(_name(key, candidate)) if self._cache is not None else None
        return None if content is None else dict(json.loads(content))

    def store(self, key: str, names: Sequence[str], result: Mapping[str, Any]) -> None:
        for name in names if self._cache is not None else ():
            self._cache.store(_name(key, name), json.dumps(result).encode())  # type: ignore[union-attr]

    def drop(self, key: str, names: Sequence[str]) -> None:
        for name in names if self._cache is not None else ():
            self._cache.drop(_name(key, name))  # type: ignore[union-attr]


def _name(key: str, candidate: str) -> str:
    return hashlib.sha256(f"{key} {candidate}".encode()).hexdigest()


@contextlib.contextmanager
def cluster(scheduler: str | None, workers: int) -> Iterator[Any]:
    """A client of the scheduler at an address, or of a cluster of processes on this machine.

    Raises:
        TorchmuxError: Dask is not installed.
        OSError: there is no scheduler.
    """
    try:
        from distributed import Client, LocalCluster
    except ImportError:
        raise TorchmuxError(
            "torchmux tune needs Dask, which is not installed: python -m pip install 'torchmux[tune]'."
        ) from None
    if scheduler is not None:
        with Client(scheduler) as client:
            yield client
        return
    with (
        LocalCluster(n_workers=workers, threads_per_worker=1, dashboard_address=":0") as local,
        Client(local) as client,
    ):
        yield client


def tune(
    captured: Sequence[Captured],
    client: Any,
    *,
    group: int = 2,
    say: Callable[[int, int, str], None] = lambda done, total, text: None,
) -> list[Decision]:
    """Measure every graph on every kind of machine; the decisions are also kept on this machine.

    Args:
        client: of ``distributed``.
        group: how many candidates a job has, besides eager.
        say: told how many of all jobs are done, and which was the last.

    Raises:
        TorchmuxError: the cluster has no workers, or they cannot import torchmux.
    """
    journal = Journal()
    sent = [(each, client.scatter(each, hash=False)) for each in captured]
    graphs = _planned(sent, client)
    jobs: list[tuple[Graph, list[str]]] = []
    for graph in graphs:
        left = graph.left(journal)
        jobs += [(graph, left[at : at + group]) for at in range(0, len(left), group)]
        if len(graph.order) == 1:
            jobs.append((graph, []))  # eager alone
    _measured(jobs, client, journal, say)
    found = []
    for graph in graphs:
        decision = join(graph.fingerprint, graph.results, graph.order, graph.excluded)
        decision.about = {**graph.captured.fingerprint.about, "source": "tune", "graph": graph.captured.name}
        decisions.keep(graph.fingerprint, decision)
        journal.drop(graph.key, graph.order)
        found.append(decision)
    return found


def _planned(sent: Sequence[tuple[Captured, Any]], client: Any) -> list[Graph]:
    """Every graph on every kind of machine."""
    graphs = []
    kinds: dict[int, dict[str, list[str]]] = {}
    for captured, data in sent:
        threads = int(captured.fingerprint.machine["threads"])
        if threads not in kinds:
            kinds[threads] = _kinds(client, threads)
        for workers in kinds[threads].values():
            plan = client.submit(job.plan, data, workers=workers, pure=False).result()
            fingerprint = built(Fingerprint, plan["fingerprint"], "fingerprint")
            graphs.append(Graph(captured, data, workers, fingerprint, plan["candidates"], plan["excluded"]))
    return graphs


def _kinds(client: Any, threads: int) -> dict[str, list[str]]:
    """The addresses of the workers that say the same of themselves."""
    try:
        described = client.run(job.describe, threads)
    except ImportError as error:
        raise TorchmuxError(f"A worker of the cluster cannot import torchmux: {error}.") from error
    if not described:
        raise TorchmuxError("The cluster has no workers.")
    kinds: dict[str, list[str]] = {}
    for address, told in described.items():
        kinds.setdefault(told, []).append(address)
    return kinds


def _measured(
    jobs: Sequence[tuple[Graph, list[str]]],
    client: Any,
    journal: Journal,
    say: Callable[[int, int, str], None],
) -> None:
    from distributed import as_completed

    futures = {}
    try:
        for graph, names in jobs:
            future = client.submit(job.measure, graph.data, names, workers=graph.workers, pure=False)
            futures[future] = (graph, names)
        say(0, len(jobs), "")
        for done, future in enumerate(as_completed(list(futures)), 1):
            graph, names = futures[future]
            error = future.exception() if future.status == "error" else None
            if error is not None:
                words = " ".join(f"{type(error).__name__}: {error}".split())[:400]
                rows = [{"candidate": n, "backend": n.partition("(")[0], "options": {}, "verdict": "lost",
                         "reason": f"its job failed: {words}"} for n in names]  # fmt: skip
                graph.results.append({"rows": rows})
            else:
                result = future.result()
                graph.results.append(result)
                journal.store(graph.key, names, result)
            say(done, len(jobs), f"{graph.captured.name}: {', '.join(names) or EAGER}" + (" failed" if error else ""))
    finally:
        client.cancel(list(futures))
