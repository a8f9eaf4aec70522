"""A report as one page for browsers.

* ``page.html`` is the page without its data: style and script, which draw everything;
* ``sources`` finds the functions of the program that the page shows, and what happened in which line;
* ``writing`` puts all together.

The page is a single file and loads nothing.  Names, code and messages of the program may contain anything: they enter
the page as JSON, the script shows them as text only, and the page's own policy lets the browser run no other script.
"""

from .writing import frame, html, write

__all__ = ["frame", "html", "write"]
