"""These tests run only where they are asked for by their marker."""


def pytest_ignore_collect(collection_path, config):
    """A run with another ``-m``, or none, leaves them out."""
    wanted = config.getoption("markexpr", "")
    return True if "libraries" not in wanted or "not libraries" in wanted else None
