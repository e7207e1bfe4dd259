"""Trains a small depthwise separable network on scikit-learn's digits, with torch's layers and with convx's.

    python examples/digits.py [--epochs 25] [--output digits.png]

Same seed, same batches: the two learning curves are the same but for rounding.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import Tensor, nn

import convx.nn

Split = tuple[Tensor, Tensor, Tensor, Tensor]


def separable(conv: type[nn.Conv2d], channels: int, out_channels: int, stride: int = 1) -> nn.Sequential:
    """A depthwise 3x3 and a pointwise layer, each normalised and rectified."""
    return nn.Sequential(
        conv(channels, channels, 3, stride=stride, padding=1, groups=channels, bias=False),
        nn.BatchNorm2d(channels),
        nn.ReLU(),
        conv(channels, out_channels, 1, bias=False),
        nn.BatchNorm2d(out_channels),
        nn.ReLU(),
    )


def network(conv: type[nn.Conv2d]) -> nn.Sequential:
    """For 8x8 images of ten classes. conv is torch.nn.Conv2d or convx.nn.Conv2d."""
    return nn.Sequential(
        conv(1, 24, 3, padding=1),
        nn.ReLU(),
        separable(conv, 24, 48),
        separable(conv, 48, 64, stride=2),
        separable(conv, 64, 96),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(96, 10),
    )


def digits() -> Split:
    """Training images, test images, training labels, test labels."""
    images, labels = load_digits(return_X_y=True)
    pixels = torch.tensor(images, dtype=torch.float32).view(-1, 1, 8, 8) / 16
    split: Split = train_test_split(
        pixels, torch.tensor(labels), test_size=0.25, random_state=0, stratify=labels
    )
    return split


def train(conv: type[nn.Conv2d], split: Split, epochs: int, device: str) -> Iterator[float]:
    """Accuracy on the test images after each epoch."""
    images, test_images, labels, test_labels = (tensor.to(device) for tensor in split)
    torch.manual_seed(0)
    model = network(conv).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3, weight_decay=1e-4)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs)
    for _ in range(epochs):
        model.train()
        for batch in torch.randperm(len(images)).to(device).split(64):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(images[batch]), labels[batch]).backward()
            optimizer.step()
        schedule.step()
        model.eval()
        with torch.no_grad():
            yield float((model(test_images).argmax(1) == test_labels).float().mean())


def plot(curves: dict[str, list[float]], path: Path) -> None:
    figure, axis = plt.subplots(figsize=(7, 4))
    styles = {
        "torch.nn": {"color": "#9aa3af", "linewidth": 5},
        "convx.nn": {"color": "#2563eb", "linewidth": 1.8},
    }
    for name, accuracies in curves.items():
        label = f"{name}.Conv2d: {accuracies[-1]:.2%}"
        axis.plot(range(1, len(accuracies) + 1), accuracies, label=label, **styles[name])
    axis.set(xlabel="epoch", ylabel="accuracy on the test images", title="Digits, the same network and seed")
    axis.yaxis.set_major_formatter(matplotlib.ticker.PercentFormatter(1))
    axis.grid(color="#e5e7eb")
    axis.legend(frameon=False, loc="lower right")
    axis.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=120, bbox_inches="tight")
    plt.close(figure)


def main(arguments: list[str] | None = None) -> dict[str, list[float]]:
    parser = argparse.ArgumentParser(description="Trains the same network with torch's and convx's layers.")
    parser.add_argument("--epochs", type=int, default=25)
    parser.add_argument("--output", type=Path, default=Path("digits.png"), help="the plot of both curves")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    options = parser.parse_args(arguments)
    split = digits()
    curves: dict[str, list[float]] = {}
    for name, conv in (("torch.nn", nn.Conv2d), ("convx.nn", convx.nn.Conv2d)):
        begin = time.monotonic()
        curves[name] = list(train(conv, split, options.epochs, options.device))
        print(f"{name}.Conv2d: accuracy {curves[name][-1]:.2%}, {time.monotonic() - begin:.1f} s")
    plot(curves, options.output)
    print(options.output)
    return curves


if __name__ == "__main__":
    main()
