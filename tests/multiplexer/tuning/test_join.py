"""One decision from the jobs of one graph: what is compared, and how surely."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest
from decided import FINGERPRINT

from torchmux.multiplexer.tuning.join import Figure, difference, join

ORDER = ["eager", "native", "onnxrt", "native(keep_scratch=True)"]


def result(
    seconds: float = 1e-3, noise: float = 0.0, count: int = 20, seed: int = 0, **ratios: float
) -> dict[str, Any]:
    """A job on a worker where eager takes so many seconds; ``noise`` is the deviation of each ratio's logarithm."""
    draw = random.Random(seed)
    rows = [{"candidate": n, "backend": n.partition("(")[0], "options": {}, "verdict": "slower"} for n in ratios]
    rows.append({"candidate": "eager", "backend": "eager", "options": {}, "verdict": "slower"})
    logs = {n: [math.log(ratio) + draw.gauss(0, noise) for _ in range(count)] for n, ratio in ratios.items()}
    return {"rows": rows, "ratios": logs, "eager": [seconds] * count, "seconds": 5.0}


def verdicts(*results: dict[str, Any]) -> dict[str, str]:
    return {row.candidate: row.verdict for row in join(FINGERPRINT, results, ORDER[:3], {}).rows}


def test_ratios_decide_and_not_times():
    """The worker of onnxrt is ten times faster; its ratio is the worse one."""
    decision = join(FINGERPRINT, [result(10e-3, native=0.5), result(1e-3, onnxrt=0.8)], ORDER[:3], {"tvm": "no"})
    assert decision.backend == "native"
    assert decision.reason == "it is the quickest beyond doubt"
    told = {row.candidate: row for row in decision.rows}
    assert [row.candidate for row in decision.rows] == ["native", "onnxrt", "eager", "tvm"]
    assert told["native"].milliseconds == pytest.approx(0.5 * told["eager"].milliseconds)
    assert told["onnxrt"].milliseconds == pytest.approx(0.8 * told["eager"].milliseconds)
    assert told["onnxrt"].reason == "1.60 times the time of native; 0.800 of eager"
    assert told["eager"].reason == "2.00 times the time of native"
    assert (told["tvm"].verdict, decision.seconds) == ("excluded", 10.0)


def test_ties_go_to_the_simpler():
    """onnxrt may be quicker by less than what counts, but this is not sure enough."""
    found = verdicts(result(noise=0.01, native=0.5), result(noise=0.01, seed=1, onnxrt=0.5))
    assert found == {"native": "chosen", "onnxrt": "tie", "eager": "slower"}


def test_what_noise_hides_is_not_settled():
    decision = join(FINGERPRINT, [result(noise=0.5, native=0.5), result(noise=0.5, seed=1, onnxrt=0.6)], ORDER[:3], {})
    assert {row.candidate: row.verdict for row in decision.rows[:2]}.keys() == {"native", "onnxrt"}
    assert {row.verdict for row in decision.rows[:2]} == {"chosen", "unsettled"}
    assert decision.reason == "it was the quickest when the budget was spent, though the ranking is not settled"


def test_nothing_beats_eager():
    assert verdicts(result(native=1.2), result(onnxrt=1.5)) == {
        "eager": "chosen",
        "native": "slower",
        "onnxrt": "slower",
    }


def test_too_few_turns_are_never_beyond_doubt():
    decision = join(FINGERPRINT, [result(native=0.5, count=3), result(onnxrt=0.9)], ORDER[:3], {})
    assert decision.backend == "native"
    assert "not settled" in decision.reason


def test_who_is_wrong_or_lost_is_not_chosen():
    wrong = result(native=0.1)
    wrong["rows"][0] |= {"verdict": "wrong", "reason": "off by 1"}
    lost = {"rows": [{"candidate": "onnxrt", "backend": "onnxrt", "options": {}, "verdict": "lost", "reason": "gone"}]}
    decision = join(FINGERPRINT, [wrong, lost], ORDER[:3], {})
    assert decision.backend == "eager"
    assert {row.candidate: row.reason for row in decision.rows}["native"] == "off by 1"
    assert [row.candidate for row in decision.ranking] == ["eager"]


def test_nobody_could_be_timed():
    decision = join(FINGERPRINT, [], ORDER, {})
    assert (decision.backend, decision.reason) == ("eager", "no candidate could be timed")
    assert {row.verdict for row in decision.rows} == {"lost"}


def test_the_bounds_hold_as_often_as_they_say():
    """Of 400 pairs with a known difference, the interval misses about the share that it states on both sides."""
    draw = random.Random(0)
    missed = 0
    for _ in range(400):
        one = Figure.of([draw.gauss(0.3, 0.2) for _ in range(9)])
        other = Figure.of([draw.gauss(0.0, 0.05) for _ in range(30)])
        low, high = difference(one, other, 0.05)
        missed += not low <= 0.3 <= high
    assert 20 <= missed <= 60
