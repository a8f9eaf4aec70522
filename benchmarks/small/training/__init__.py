"""Losses, optimizers, and steps of training."""
