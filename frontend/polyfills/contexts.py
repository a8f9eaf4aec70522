"""Functions that run inside a context manager."""


def inside(make, function):
    """`function`, each of whose calls runs in a context manager of its own."""

    def run(*args, **kwargs):
        with make():
            return function(*args, **kwargs)

    return run
