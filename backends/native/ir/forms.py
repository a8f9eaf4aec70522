"""What lowering and rewrites ask of a target, without knowing which one it is.

Products, convolutions and attention are abstract in a program.  In which form their operands lie in memory is settled
while a graph is lowered, though, since everything around them takes that form over: so lowering asks.  The answers
depend on dtypes, sizes and strides alone; nothing is measured.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, Protocol

import torch

from .index import Index
from .values import Value


class Forms(Protocol):
    """The forms in which a target takes operands, and what it cannot compute at all."""

    def lacks(self) -> Mapping[str, str]:
        """The operations of the table that the target does not spell, with the reasons."""

    def takes_matrix(self, matrix: Value) -> bool:
        """Whether a product reads ``matrix``, which is in memory, where it lies; it is copied otherwise."""

    def computes_operand(self, left: Value, right: Value) -> bool:
        """Whether a product takes its right operand as an expression (``products.ComputedProduct``): it reads ``left``
        in float32, and its sums stay in float32, whatever the dtype of the operands."""

    def is_thin(self, left: Value, right: Value) -> bool:
        """Whether a product is a loop like others, and fused with them: an element of it is a sum of a few numbers, and
        most of these are the same for many elements."""

    def padded_strides(self, matrix: Value) -> tuple[Index, ...] | None:
        """Strides with gaps between rows, which the option ``shape_padding`` asks for where a matrix is written for a
        product; None if there is nothing to gain."""

    def row_unit(self, left: Value, right: Value) -> int:
        """Rows of two matrices that are multiplied, and of their product, should start at multiples of so many
        elements, and operands that do not are copied; 1 where they are taken as they are."""

    def chooses_parts(self, parts: Sequence[Value]) -> bool:
        """Whether tensors that are joined are chosen from where the whole is read, and not written side by side."""

    def order_of_images(
        self, images: Value, weight: Value, stride: Sequence[int], transposed: bool, groups: int
    ) -> Literal["usual", "channels last"] | None:
        """In which order of dimensions a convolution should read and write images, or sequences; None: as they come.

        The sizes are known numbers, and the weight may change from call to call.
        """

    def differentiates_by_channels(self, weight: Value, groups: int) -> bool:
        """Whether the gradients of a convolution are computed from images in channels last, however these were."""

    def orders_weights(self) -> bool:
        """Whether a weight is put into channels last for images that are, which a library would do in each call."""

    def trains_in_channels_last(self, images: torch.Tensor) -> bool:
        """Whether convolutions with results like ``images``, and their gradients, are faster in channels last, so that
        a graph is traced so, and computed as it was traced."""

    def shifts_convolutions(self) -> bool:
        """Whether the bias of a convolution is added by a loop, which is fused with others; the library would take a
        pass of its own for it."""

    def filters(self, taps: int) -> bool:
        """Whether loops compute convolutions in which an element is the sum of a window with so many elements.

        Each channel has a window of its own, or few channels have one.
        """

    def multiplies_windows(self, images: Value, weight: Value, transposed: bool) -> bool:
        """Whether a convolution whose windows do not overlap is a product of matrices.

        All sizes but the number of images are known numbers.
        """

    def writes_windows_in_pieces(self) -> bool:
        """Whether a result whose elements are windows over rows is written in pieces, of which the interior needs no
        check whether an element lies in the image; a piece is no part of what is fused with the whole."""

    def interpolates_at_once(self) -> bool:
        """Whether an element between others is computed from all elements around it, and so is part of what is fused;
        else there is a pass for each dimension, which reads less and writes what is between them."""

    def sums_squares_widely(self) -> bool:
        """Whether variances and standard deviations add float64, as eager's kernels for the same device do."""

    def finishes_convolutions(self) -> bool:
        """Whether a convolution with a constant weight adds a tensor to its result and applies a relu itself; it then
        reads and writes images whose channels lie side by side."""

    def attends(self, query: torch.Tensor, scores: int) -> bool:
        """Whether fused attention is worth it for ``query``, a fake tensor, with so many scores in each head."""
