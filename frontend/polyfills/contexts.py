"""Functions that run inside a context manager."""


def inside(make, function):
    """`function`, with each call in a new context manager."""

    def run(*args, **kwargs):
        with make():
            return function(*args, **kwargs)

    return run
