#!/usr/bin/env python3
"""A Python program whose signal handler runs during dense products ends with the same numbers.

usage: signals_test.py LIBMEZZO VERSION_OF_TORCH [SECONDS]
"""
import signal
import sys
import time

from load_torch import load_torch

torch = load_torch(sys.argv[2])
torch.ops.load_library(sys.argv[1])
SECONDS = float(sys.argv[3]) if len(sys.argv) > 3 else 2
INTERVAL = 0.0005

alarms = 0


def count(_signal, _frame):
    global alarms
    alarms += 1


def train_step(x, weight):
    """The output and the gradients of a layer; the weight's is summed over all rows."""
    x, weight = x.clone().requires_grad_(), weight.clone().requires_grad_()
    out = torch.ops.mezzo.linear(x, weight, None)
    out.sum().backward()
    return out.detach(), x.grad, weight.grad


def check(dtype, threads):
    torch.set_num_threads(threads)
    x, weight = torch.rand(6000, 300).to(dtype), torch.rand(64, 300).to(dtype)
    expected = train_step(x, weight)
    signal.setitimer(signal.ITIMER_REAL, INTERVAL, INTERVAL)
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        for result, wanted in zip(train_step(x, weight), expected):
            if not torch.equal(result, wanted):
                sys.exit(f"{dtype}, {threads} threads: a product gave other bits under signals")
    signal.setitimer(signal.ITIMER_REAL, 0)


signal.signal(signal.SIGALRM, count)
for dtype in (torch.float32, torch.bfloat16, torch.float16):
    for threads in (1, 2):
        check(dtype, threads)
if alarms < 100:
    sys.exit(f"only {alarms} signals were handled")
print(f"{alarms} signals were handled during products")
