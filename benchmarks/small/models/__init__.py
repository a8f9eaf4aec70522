"""Pieces of models, most of them as their authors write them."""
