"""The version, where every part of torchmux can read it."""

__version__ = "0.1.0"
