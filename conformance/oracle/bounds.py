"""How far a backend's floating-point numbers may be from the exact ones.

Three numbers belong to each element: the exact one, which is the same program's in float64; eager's; the backend's.
An error is counted in *units*: spacings of the dtype at the exact number, gradual underflow included.  Half a unit is
what the last rounding costs, even if everything before it is exact.  What eager's error has beyond that is its
*excess*; it says how the program treats rounding errors on the way.  The bound of an element is

    half a unit + SLACK units + MULTIPLE * (the excess of eager at this element + the jump) + CONDITION * the shift

The largest excess of several draws counts: runs of eager on inputs that differ by at most one unit.  The shift is how
far the exact number moves between draws, which is the condition of the problem: no computation whose own steps round to
this precision can do better.  An element on which eager is bad excuses no other element.

Measurements also draw from further away (:func:`reach`).  Where the exact number moves by far more than in proportion,
it jumps: a rectifier, a maximum or a comparison on the way is beside its threshold, and rounding errors decide.

Where eager is exact in every element of a tensor, nothing was rounded: the backend must have the same bits.

Truncation stays inside such a bound, and shows as a bias: errors that lean towards zero by half a unit on average.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

MULTIPLE = 4.0
"""A backend's excess may be this many times eager's: other orders of operations are other draws of rounding errors."""
DRAWS = 12
"""How many times eager's error, which may be small by chance, is measured before a result is judged wrong."""

FAR = 8.0
"""By how many units draws from further away differ: about what the steps of a network add up to."""

JUMP = 32.0
"""How many times the shift of near draws is a jump in those from further away."""

EIGHT_BITS = torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz
"""Floats that are only stored: what computes them is at least float32, so they are bounded as bfloat16 is."""

SLACK = {
    torch.float16: 0.5, torch.bfloat16: 0.5, torch.float32: 4.0, torch.float64: 4.0, **dict.fromkeys(EIGHT_BITS, 0.5),
}  # fmt: skip
"""Units that are always allowed.

Code for half precision computes in float32, whose errors are 2^-13 or 2^-16 units: half a unit covers a number beside
a tie, and one more rounding to float32.  float32 and float64 have mathematical functions of vectors, which are up to 4
units off.
"""

CONDITION = {
    torch.float16: 2.0**-12, torch.bfloat16: 2.0**-15, torch.float32: 2.0, torch.float64: 2.0,
    **dict.fromkeys(EIGHT_BITS, 2.0**-15),
}  # fmt: skip
"""How much of the shift is allowed.  Half precision is computed in float32, whose unit is that much smaller."""

UNDERFLOW = {torch.float32: 256 * 2.0**-149, torch.float64: 256 * 2.0**-1074}
"""What steps on the way may lose by gradual underflow; flushing subnormal numbers to zero loses far more."""

UNREFERENCED = {
    torch.float16: 3.0, torch.bfloat16: 3.0, torch.float32: 3.0, torch.float64: 64.0, **dict.fromkeys(EIGHT_BITS, 3.0),
}  # fmt: skip
"""Without a reference, eager's number stands for the exact one: so many times the slack.

In float64 there never is one, and the errors of two long sums are compared with each other; float32 is 2^29 units off.
"""

EXACT = 1.5
"""Eager's error, in units, up to which it shows how the last rounding is done; larger ones have other causes."""

BIAS = 0.3
"""Mean signed error, in units, that needs no explanation; truncation has 0.5."""

FEWEST = 48
"""A mean over fewer different numbers says nothing about a bias."""

DEVIATIONS = 5.0
"""A bias is one only if it is this many standard errors of the mean away from the allowed one."""


@dataclass(frozen=True)
class Errors:
    """The errors of elements that are finite everywhere, in flat float64 tensors."""

    exact: torch.Tensor
    eager: torch.Tensor
    found: torch.Tensor
    unit: torch.Tensor  # the spacing of the dtype at each exact number
    slack: float
    least: float = 0.0  # what is allowed beside zero

    @property
    def off(self) -> torch.Tensor:
        return (self.found - self.exact).abs()

    @property
    def excess(self) -> torch.Tensor:
        """Eager's error beyond the last rounding."""
        return excess(self.eager, self.exact, self.unit)

    def allowed(self, excess: torch.Tensor, unit: torch.Tensor | None = None) -> torch.Tensor:
        """The bound of each element, for an excess of eager and, if they are not its own, units."""
        unit = self.unit if unit is None else unit
        return (0.5 + self.slack) * unit + MULTIPLE * excess + self.least

    def bias(self) -> float:
        """How far the mean signed error, in units, is beyond what is allowed; 0 if it is not.

        Positive errors point away from zero.  Numbers that occur more than once count once: their errors are the same.
        """
        normal = self.exact != 0
        if int(normal.sum()) < FEWEST:
            return 0.0
        exact, unit = self.exact[normal], self.unit[normal]
        if float(((self.eager[normal] - exact).abs() / unit).mean()) > EXACT:
            return 0.0
        ours = (self.found[normal] - exact) * exact.sign() / unit
        allowed = BIAS + 2 * abs(float(((self.eager[normal] - exact) * exact.sign() / unit).mean()))
        if abs(float(ours.mean())) <= allowed:
            return 0.0
        _, places = torch.unique(exact, return_inverse=True)
        number = torch.arange(len(places), device=places.device)
        first = number.new_full((int(places.max()) + 1,), len(places)).scatter_reduce_(0, places, number, "amin")
        if len(first) < FEWEST:
            return 0.0
        ours = ours[first]
        mean, deviation = float(ours.mean()), float(ours.std()) / len(first) ** 0.5
        return mean if abs(mean) > allowed + DEVIATIONS * deviation else 0.0


def reach(draw: int) -> float:
    """By how many units the inputs of a measurement's draw differ: every second one comes from further away."""
    return FAR if draw and draw % 2 == 0 else 1.0


def extreme(number: int) -> float:
    """How many times the largest of so many normal numbers is the largest of a hundred, about."""
    return math.sqrt(max(1.0, math.log(max(number, 1)) / math.log(100)))


def jump(far: torch.Tensor, near: torch.Tensor) -> torch.Tensor:
    """How far the exact numbers jump, given how far they move in draws from further away, and in near ones."""
    return torch.where(far > JUMP * near.clamp(min=float(near.median()) if near.numel() else 0.0), far, 0.0)


def units(exact: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """The spacing of the numbers of ``dtype`` at each element of a float64 tensor, not less than the subnormal one."""
    info = torch.finfo(dtype)
    exponent = torch.frexp(exact.abs().clamp(min=info.tiny)).exponent
    return torch.ldexp(torch.full_like(exact, info.eps), exponent - 1)


def excess(eager: torch.Tensor, exact: torch.Tensor, unit: torch.Tensor) -> torch.Tensor:
    """By how much each error exceeds half a unit."""
    return ((eager - exact).abs() - 0.5 * unit).clamp(min=0.0)
