"""Functions that take functions: each module traces the given functions into separate graphs.

They share ``region``, which traces a call into a graph module whose inputs include the values it uses from outside.
"""
