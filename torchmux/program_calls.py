"""Counts the program's calls of compiled code, for backends that keep memory from one call to the next.

A call may run several graphs, and their results must live as long as it lasts; only the frontend knows where it begins.
"""

from __future__ import annotations

made = [0]
"""How many calls the program has made in this process; calls that compiled code makes of compiled code not included."""
