"""Operators by types, layouts and sizes."""
