#!/usr/bin/env python3
"""PyTorch's own modules in the network of bench/cuda.cpp --part cnn: TF32 and AMP.

usage: cnn_torch.py [--rounds N] [--json FILE]
"""
import torch
from torch import nn

import common

# in, out, kernel, stride, padding: examples/cnn/network.h
CONVOLUTIONS = [
    (1, 32, 3, 1, 1), (32, 64, 3, 1, 1), (64, 64, 2, 2, 0), (64, 128, 3, 1, 1),
    (128, 128, 3, 1, 1), (128, 128, 3, 1, 1), (128, 128, 2, 2, 0), (128, 256, 3, 1, 1),
    (256, 256, 2, 1, 0), (256, 512, 3, 1, 1), (512, 512, 3, 1, 1), (512, 512, 3, 1, 1),
    (512, 512, 2, 2, 0), (512, 1024, 3, 1, 1)]


def network():
    layers = []
    for inputs, outputs, kernel, stride, padding in CONVOLUTIONS:
        layers += [nn.Conv2d(inputs, outputs, kernel, stride, padding, bias=False),
                   nn.BatchNorm2d(outputs), nn.ReLU()]
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(1024, 1000), nn.ReLU(),
               nn.Linear(1000, 1000), nn.ReLU(), nn.Linear(1000, 10)]
    return nn.Sequential(*layers)


def step_of(images, labels, dtype, channels_last, tf32):
    torch.manual_seed(0)
    layout = torch.channels_last if channels_last else torch.contiguous_format
    net = network().to(common.DEVICE, memory_format=layout)
    images = images.to(memory_format=layout)
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3, fused=True)
    scaler = torch.amp.GradScaler(enabled=dtype == torch.float16)

    def run():
        torch.backends.cuda.matmul.allow_tf32 = tf32
        torch.backends.cudnn.allow_tf32 = tf32
        optimizer.zero_grad()
        with torch.autocast(common.DEVICE, dtype=dtype or torch.float16, enabled=dtype is not None):
            logits = net(images)
        loss = nn.functional.cross_entropy(logits.float(), labels)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        return [loss.detach().reshape(1)]
    return run


def main():
    report = common.Report(__doc__.splitlines()[0])
    report.parse()
    for batch in [512, 2048]:
        images = torch.rand(batch, 1, 28, 28, device=common.DEVICE)
        labels = torch.randint(10, (batch,), device=common.DEVICE)
        candidates = []
        for name, dtype in [("fp32", None), ("tf32", None), ("bf16", torch.bfloat16),
                            ("fp16", torch.float16)]:
            for channels_last in [False, True]:
                candidates.append((f"PyTorch, {name}{' channels-last' if channels_last else ''}",
                                   name, step_of(images, labels, dtype, channels_last,
                                                 tf32=name != "fp32")))
        report.measure("training step of the cnn, F images", batch, candidates, repeats=5,
                       warm_ups=4)
    report.finish()


main()
