"""Functions that take functions: each module traces what they are given into graphs of their own.

``region`` is what they share: tracing a call into a graph module, with what it takes from around it made its inputs.
"""
