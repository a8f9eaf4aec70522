"""torch.compile on a CPU: a truncating division of integers by zero ends the process.  Exits with 1 while it does."""

import subprocess
import sys

import torch

TEXT = """
import torch
torch.compile(lambda n, m: torch.div(n, m, rounding_mode="trunc"))(torch.tensor([3, 4]), torch.tensor([2, 0]))
"""
ended = subprocess.run([sys.executable, "-c", TEXT], capture_output=True).returncode
print("torch", torch.__version__, "exit status", ended)
sys.exit(int(ended < 0))
