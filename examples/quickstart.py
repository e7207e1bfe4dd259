"""convx in a few lines: convert a model, call a convolution, see what is chosen and why."""

import torch

import convx


def main() -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Conv2d(32, 32, 3, padding=1, groups=32), torch.nn.ReLU6(), torch.nn.Conv2d(32, 64, 1)
    )
    x = torch.randn(1, 32, 56, 56)
    native = model(x)

    print(convx.convert_(model, example_input=x))
    print(f"largest difference to native: {(model(x) - native).abs().max():.1e}\n")
    convx.revert_(model)

    w = torch.randn(32, 1, 3, 3, requires_grad=True)
    y = convx.functional.conv2d(x, w, padding="same", groups=32, activation="relu6")
    y.sum().backward()
    print(f"output {tuple(y.shape)}, weight gradient {tuple(w.grad.shape)}\n")

    print(convx.explain(x, w, padding=1, groups=32))
    print()
    print(convx.explain(x, w, padding=1, groups=32, device="h200"))


if __name__ == "__main__":
    main()
