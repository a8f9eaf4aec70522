"""torch.compile with ``reduce-overhead`` on a GPU: a result cannot be read after the next call of another function.
Exits with 1 while so."""

import sys

import torch

if not torch.cuda.is_available():
    raise ModuleNotFoundError("there is no GPU here")

x, refused = torch.ones(5, device="cuda"), ""
results = []
for _ in range(4):
    function = torch.compile(lambda x: x.exp() + 1, mode="reduce-overhead")
    with torch.no_grad():
        results += [function(x), function(x)]
try:
    for result in results:
        result.cpu()
except RuntimeError as error:
    refused = str(error).splitlines()[0][:100]
print("torch", torch.__version__, "refused:", refused)
sys.exit(int(bool(refused)))
