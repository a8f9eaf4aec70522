"""Programs whose graphs break, for files that other processes load."""

import functools

import torch

SCALE = 2.0
LOG = []


def logged(function):
    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        LOG.append(function.__name__)
        return function(*args, **kwargs)

    return wrapper


def helper(x):
    y = torch.sin(x) * SCALE
    print("helper")
    return y + 1


def between(x):
    y = x + 1
    print("between")
    return torch.relu(y) * 2


def branches(x, n=3):
    y = helper(torch.cos(x))
    y = y * 2 if y.sum().item() > 0 else y - 5
    for i in range(n):
        y = helper(y) + i
    return {"y": y, "n": n}


class Block(torch.nn.Module):
    def __init__(self, n):
        super().__init__()
        self.inner = torch.nn.Linear(n, n)
        self.calls = 0

    @property
    def factor(self):
        return 2.0

    @staticmethod
    def doubled(x):
        return x * 2

    @classmethod
    def halved(cls, x):
        return x / cls.doubled(1)

    def forward(self, x):
        y = torch.relu(self.inner(x)) * self.factor
        self.calls += 1
        print("block")
        return self.inner(self.halved(self.doubled(y)) / self.factor) + x


class Net(torch.nn.Module):
    def __init__(self, n=8):
        super().__init__()
        self.blocks = torch.nn.ModuleList(Block(n) for _ in range(3))
        self.head = torch.nn.Linear(n, 4)
        self.register_buffer("seen", torch.zeros(()))

    @logged
    def forward(self, x, *, scale=1.0):
        self.seen += 1
        for block in self.blocks:
            x = block(x)
        x = self.head(x) * scale
        return torch.softmax(x, -1), x.argmax(-1).tolist()


class Other(Block):
    def forward(self, x):
        return self.inner(x)


def net():
    torch.manual_seed(0)
    return Net().eval()


CALLS = {
    "between": [((torch.ones(n),), {}) for n in (3, 5, 6)],
    "branches": [((torch.ones(3),), {}), ((torch.full((3,), -3.0),), {}), ((torch.ones(4),), {"n": 1})],
    "net": [((torch.ones(2, 8),), {}), ((torch.ones(5, 8),), {}), ((torch.ones(3, 8),), {"scale": 0.5})],
}
