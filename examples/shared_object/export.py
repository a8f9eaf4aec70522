"""Compiles a small network, and saves it as build/libnet.so with net.h beside it; main.cpp runs it without Python.

python export.py build
g++ -std=c++17 -Ibuild main.cpp -Lbuild -lnet -Wl,-rpath,'$ORIGIN' -o build/main
build/main
"""

import sys
from pathlib import Path

import torch

import torchmux


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(0)
    net = torch.nn.Sequential(
        torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.Linear(16, 4), torch.nn.Softmax(-1)
    ).eval()
    compiled = torchmux.compile(net, backend="native")
    with torch.no_grad():
        compiled(torch.randn(3, 8))
        compiled(torch.randn(5, 8))  # a second size: the number of rows becomes symbolic
    torchmux.save(compiled, folder / "libnet.so", format="so")
    rows = torch.linspace(-1, 1, 7 * 8).reshape(7, 8)
    with torch.no_grad():
        print("\n".join(" ".join(f"{value:.6f}" for value in row) for row in net(rows).tolist()))


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "build"))
