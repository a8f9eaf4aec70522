"""``re.Pattern.sub`` and ``subn`` with a function of the program, which is called for each match."""

import re

from .tables import method_polyfill


@method_polyfill(re.Pattern, "subn")
def subn(pattern, /, repl, string, count=0):
    parts = []
    at = done = 0
    for match in pattern.finditer(string):
        if 0 < count <= done:
            break
        start, end = match.span()
        if at < start:
            parts.append(string[at:start])
        new = repl(match)
        if new is not None:
            parts.append(new)
        at = end
        done += 1
    if at < len(string):
        parts.append(string[at:])
    return string[:0].join(parts), done


@method_polyfill(re.Pattern, "sub")
def sub(pattern, /, repl, string, count=0):
    return subn(pattern, repl, string, count)[0]
