"""Filters on a photo: edges, a blur, a filter of one's own, and one that is learnt.

    python examples/filters.py [PHOTO] [--output FOLDER]

Takes a photo of scikit-image's where none is given; writes pictures into the folder where one is.
"""

import argparse
from pathlib import Path

import numpy as np
import torch
from PIL import Image

import convx


def main() -> None:
    parser = argparse.ArgumentParser(description="Filters a photo, and learns a filter from what it did.")
    parser.add_argument("photo", nargs="?", help="a file that Pillow reads (default: one of scikit-image's)")
    parser.add_argument("--output", type=Path, help="folder for the pictures")
    options = parser.parse_args()

    torch.manual_seed(0)
    if options.photo:
        with Image.open(options.photo) as file:
            pixels = np.array(file.convert("RGB"))
    else:
        from skimage import data

        pixels = data.astronaut()
    photo = torch.from_numpy(pixels).permute(2, 0, 1)  # (3, height, width), uint8
    gray = photo.float().mean(0).to(torch.uint8)

    pictures = {
        "edges": convx.nn.Sobel2d()(gray),
        "blur": convx.nn.GaussianBlur2d(3.0)(photo),
        "sharp": convx.functional.filter2d(photo, [[0, -1, 0], [-1, 5, -1], [0, -1, 0]], border="replicate"),
    }
    for name, picture in pictures.items():
        print(f"{name}: {tuple(picture.shape)}, {picture.dtype}, mean {picture.float().mean():.1f}")
        if options.output:
            options.output.mkdir(parents=True, exist_ok=True)
            channels_last = picture if picture.dim() == 2 else picture.permute(1, 2, 0)
            Image.fromarray(channels_last.contiguous().numpy()).save(options.output / f"{name}.png")

    # A filter is a parameter too: find the one that was applied.
    image = gray.float() / 255
    wanted = convx.nn.Filter2d([[1, 2, 1], [0, 0, 0], [-1, -2, -1]], border="reflect")(image)
    layer = convx.nn.Filter2d(torch.zeros(3, 3), border="reflect", trainable=True)
    optimizer = torch.optim.LBFGS(layer.parameters(), max_iter=50)

    def loss() -> torch.Tensor:
        optimizer.zero_grad()
        value = (layer(image) - wanted).square().sum()
        value.backward()
        return value

    optimizer.step(loss)
    print(f"learnt:\n{layer.filter.detach().round(decimals=2)}")


if __name__ == "__main__":
    main()
