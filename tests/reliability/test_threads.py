"""Threads that call compiled functions with changing shapes, while one of them resets torchmux."""

from __future__ import annotations

import random
import threading

import pytest
import torch

import torchmux
from tests.reliability.program import function
from tests.tiers import slow_but


@pytest.mark.parametrize("size", slow_but([(4, 50, 5), (8, 2000, 30)], (4, 50, 5)))
def test_threads(size):
    threads, calls, shapes = size
    functions = [function(number) for number in range(3)]
    compiled = [torchmux.compile(f, backend="native") for f in functions]
    checked, wrong, errors = [0] * threads, [0] * threads, []

    def work(at: int) -> None:
        numbers = random.Random(at)
        for call in range(calls):
            which = numbers.randrange(len(functions))
            x = torch.linspace(-1, 1, 7 * numbers.randint(1, shapes)).reshape(-1, 7)
            try:
                with torch.no_grad():
                    found, wanted = compiled[which](x), functions[which](x)
            except Exception as error:
                errors.append(error)
                return
            checked[at] += 1
            wrong[at] += not torch.allclose(found, wanted, rtol=1e-5, atol=1e-6)
            if at == 0 and call % (calls // 4) == calls // 8:
                torchmux.reset()

    running = [threading.Thread(target=work, args=(at,)) for at in range(threads)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    assert errors == []
    assert sum(checked) == threads * calls
    assert sum(wrong) == 0
