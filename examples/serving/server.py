"""Serves a file of torchmux.save over HTTP: batches, replaces the file while it runs, and tells how it is.

    python server.py model.tmx --columns 64 --port 8000 --buckets 1,2,4,8

* ``POST /predict`` takes ``{"inputs": [[numbers of one row], ...]}``, and returns ``{"outputs": [...], "version": n}``.
* ``POST /swap`` takes ``{"path": "new.tmx"}``: calls that have begun end with the old file, later ones use the new one.
* ``GET /health`` says which file is served, and ``GET /metrics`` is for Prometheus.

Rows of requests that arrive together are one call of the model, filled up to the next bucket: a saved file takes the
sizes that it was compiled for.  ``/swap`` runs the code in the file that it names: let only operators reach it.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import dataclasses
import os
import time
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import prometheus_client
import torch
import uvicorn
from fastapi import FastAPI, HTTPException, Response
from pydantic import BaseModel

import torchmux


class Rows(BaseModel):
    inputs: list[list[float]]


class NewFile(BaseModel):
    path: str


@dataclasses.dataclass(frozen=True)
class Served:
    """A loaded file; ``version`` counts them."""

    model: torchmux.Loaded
    path: str
    version: int


@dataclasses.dataclass
class Waiting:
    """Rows of one request, and where the answer goes."""

    rows: torch.Tensor
    answer: asyncio.Future


class Metrics:
    """What Prometheus reads; each server has its own registry."""

    def __init__(self) -> None:
        self.registry = prometheus_client.CollectorRegistry()
        self.requests = prometheus_client.Counter(
            "requests", "Requests by what became of them", ["status"], registry=self.registry
        )
        self.seconds = prometheus_client.Histogram(
            "request_seconds", "From a request to its answer", registry=self.registry
        )
        self.rows = prometheus_client.Histogram(
            "batch_rows", "Rows in a call of the model", buckets=(1, 2, 4, 8, 16, 32, 64), registry=self.registry
        )
        self.version = prometheus_client.Gauge("model_version", "How many files were loaded", registry=self.registry)


class Batcher:
    """Calls the model with the rows of several requests at once.

    Args:
        path: a file of ``torchmux.save`` whose program takes one tensor of rows, and returns one with as many.
        columns: how many numbers a row has.
        buckets: the numbers of rows that the file was compiled for.
        patience: how many seconds the first request waits for others.
        most_waiting: requests beyond this many are refused at once.
    """

    def __init__(
        self, path: str, columns: int, buckets: Sequence[int], *, key: str | None, patience: float, most_waiting: int
    ) -> None:
        self.columns, self.buckets, self.key, self.patience = columns, sorted(buckets), key, patience
        self.queue: asyncio.Queue[Waiting] = asyncio.Queue(most_waiting)
        self.metrics = Metrics()
        self.thread = ThreadPoolExecutor(1)  # the model's threads are torch's own
        self.served = self._load(path, 1)
        self._left: Waiting | None = None

    def _load(self, path: str, version: int) -> Served:
        """A file that answers for each bucket: one that does not is refused before it serves anything.

        Raises:
            LoadRefused, Unsupported: it is damaged, not for this machine, or lacks a bucket.
        """
        model = torchmux.load(path, key=self.key)
        with torch.no_grad():
            for rows in self.buckets:
                model(torch.zeros(rows, self.columns))
        self.metrics.version.set(version)
        return Served(model, path, version)

    async def swap(self, path: str) -> Served:
        """Serve another file from the next batch on; errors are those of loading it, and change nothing."""
        loaded = await asyncio.get_running_loop().run_in_executor(None, self._load, path, self.served.version + 1)
        self.served = loaded
        return loaded

    async def answer(self, rows: torch.Tensor) -> tuple[torch.Tensor, int]:
        """The model's results for some rows, and the version that made them.

        Raises:
            asyncio.QueueFull: too many requests wait already.
        """
        waiting = Waiting(rows, asyncio.get_running_loop().create_future())
        self.queue.put_nowait(waiting)
        return await waiting.answer

    async def run(self) -> None:
        """Make batches until the task is cancelled."""
        while True:
            batch = await self._batch()
            served, loop = self.served, asyncio.get_running_loop()
            try:
                results = await loop.run_in_executor(self.thread, self._call, served, [w.rows for w in batch])
            except Exception as error:
                for waiting in batch:
                    if not waiting.answer.done():
                        waiting.answer.set_exception(error)
                continue
            for waiting, result in zip(batch, results, strict=True):
                if not waiting.answer.done():  # whoever asked may have gone
                    waiting.answer.set_result((result, served.version))

    async def _batch(self) -> list[Waiting]:
        """What came within the patience of the first one, and fits into the largest bucket."""
        first = self._left or await self.queue.get()
        self._left = None
        batch, count, until = [first], len(first.rows), time.monotonic() + self.patience
        while count < self.buckets[-1]:
            try:
                more = await asyncio.wait_for(self.queue.get(), max(0.0, until - time.monotonic()))
            except TimeoutError:
                break
            if count + len(more.rows) > self.buckets[-1]:
                self._left = more
                break
            batch.append(more)
            count += len(more.rows)
        return batch

    def _call(self, served: Served, requests: list[torch.Tensor]) -> list[torch.Tensor]:
        rows = torch.cat(requests)
        self.metrics.rows.observe(len(rows))
        bucket = next(size for size in self.buckets if size >= len(rows))
        filled = torch.cat([rows, rows.new_zeros(bucket - len(rows), rows.shape[1])])
        with torch.no_grad():
            results = served.model(filled)[: len(rows)]
        return list(results.split([len(r) for r in requests]))


def app_of(batcher: Batcher) -> FastAPI:
    """The HTTP side."""

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        task = asyncio.create_task(batcher.run())
        yield
        task.cancel()

    app = FastAPI(lifespan=lifespan)

    @app.post("/predict")
    async def predict(body: Rows) -> dict:
        columns = batcher.columns
        if not body.inputs or len(body.inputs) > batcher.buckets[-1] or any(len(r) != columns for r in body.inputs):
            batcher.metrics.requests.labels("refused").inc()
            raise HTTPException(422, f"inputs are 1 to {batcher.buckets[-1]} rows of {columns} numbers")
        start = time.perf_counter()
        try:
            found, version = await batcher.answer(torch.tensor(body.inputs))
        except asyncio.QueueFull:
            batcher.metrics.requests.labels("busy").inc()
            raise HTTPException(503, "too many requests wait", {"Retry-After": "1"}) from None
        except Exception as error:
            batcher.metrics.requests.labels("failed").inc()
            raise HTTPException(500, f"{type(error).__name__}: {error}") from error
        batcher.metrics.requests.labels("answered").inc()
        batcher.metrics.seconds.observe(time.perf_counter() - start)
        return {"outputs": found.tolist(), "version": version}

    @app.post("/swap")
    async def swap(body: NewFile) -> dict:
        try:
            served = await batcher.swap(body.path)
        except torchmux.TorchmuxError as error:
            raise HTTPException(409, str(error)) from error
        return {"path": served.path, "version": served.version}

    @app.get("/health")
    def health() -> dict:
        return {"status": "ok", "path": batcher.served.path, "version": batcher.served.version}

    @app.get("/metrics")
    def metrics() -> Response:
        content = prometheus_client.generate_latest(batcher.metrics.registry)
        return Response(content, media_type=prometheus_client.CONTENT_TYPE_LATEST)

    return app


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("path", help="a file of torchmux.save")
    parser.add_argument("--columns", type=int, required=True, help="how many numbers a row has")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--buckets", default="1,2,4,8", help="numbers of rows that the file was compiled for")
    parser.add_argument("--patience", type=float, default=0.002, help="seconds that a request waits for others")
    parser.add_argument("--most-waiting", type=int, default=1024, help="requests beyond these get status 503")
    given = parser.parse_args()
    buckets = [int(text) for text in given.buckets.split(",")]
    batcher = Batcher(
        given.path,
        given.columns,
        buckets,
        key=os.environ.get("TORCHMUX_MODEL_KEY"),  # of a signed file
        patience=given.patience,
        most_waiting=given.most_waiting,
    )
    uvicorn.run(app_of(batcher), host=given.host, port=given.port, log_level="warning")


if __name__ == "__main__":
    main()
