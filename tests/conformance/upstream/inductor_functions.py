"""torch.compile: functions lose digits that eager's have.  Exits with 1 while all of these do."""

import sys

import torch
import torch.nn.functional as F

device = sys.argv[1] if len(sys.argv) > 1 else "cpu"
small = torch.tensor([-1e-20, 1e-6, 3e-4, -3e-4], device=device)
near = torch.tensor([-4.17e-07, 3e-7], device=device)
functions = {"expm1": torch.expm1, "elu": F.elu, "atanh": torch.atanh, "erf": torch.erf}
worst = {}
for name, function in functions.items():
    x = near if name == "erf" else small
    exact = function(x.double())
    worst[name] = [((f(x).double() - exact) / exact).abs().max().item() for f in (function, torch.compile(function))]
print("torch", torch.__version__, "relative errors of eager and torch.compile:", worst)
sys.exit(int(all(compiled > 1e-3 > eager for eager, compiled in worst.values())))
