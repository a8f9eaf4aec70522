from torchmux.conformance.suite import *  # noqa: F403


class Numpy(Requirements):  # noqa: F405
    backend = "numpy"
