"""The symbolic interpreter: runs normalized bytecode over values instead of objects."""

from . import calls, control, data, exceptions, names  # each registers its handlers
from .frame import HANDLERS, Frame

__all__ = ["HANDLERS", "Frame", "calls", "control", "data", "exceptions", "names"]
