"""What the demo prints."""

from __future__ import annotations

from collections.abc import Sequence

from convx.demo.compare import NetworkResult
from convx.demo.photo_filters import FilterResult


def print_networks(results: Sequence[NetworkResult]) -> None:
    _print_whole(results)
    _print_errors(results)
    print()
    for result in results:
        print(f"{result.title}. {result.fused}")
    for result in results:
        _print_layers(result)
    _print_methods(results)


def _print_whole(results: Sequence[NetworkResult]) -> None:
    head = f"{'optimized ms':>13}{'native ms':>11}{'faster':>8}{'converted ms':>14}{'faster':>8}"
    print(f"\n{'whole network':<44}{head}")
    for result in results:
        for each in result.whole:
            title = f"{result.title}, {each.label}, batch {result.batch}"
            optimized, native, fast = (us / 1e3 for us in (each.optimized_us, each.native_us, each.convx_us))
            print(
                f"{title:<44}{optimized:13.2f}{native:11.2f}{each.optimized_speedup:8.2f}"
                f"{fast:14.2f}{each.speedup:8.2f}"
            )


def _print_errors(results: Sequence[NetworkResult]) -> None:
    print(f"\n{'largest error against float64':<44}{'optimized':>13}{'native':>11}{'converted':>22}")
    for result in results:
        verdict = "agree" if result.agrees else "DISAGREE"
        print(
            f"{result.title:<44}{result.optimized_error:13.1e}{result.native_error:11.1e}"
            f"{result.convx_error:22.1e}  {verdict}"
        )


def _print_layers(result: NetworkResult) -> None:
    title = f"{result.title}, converted"
    print(f"\n{title}\n{'layer':<28}{'native us':>12}{'convx us':>12}{'faster':>9}  method")
    for layer in result.layers:
        if layer.converted:
            times = f"{layer.native_us:12.1f}{layer.convx_us:12.1f}{layer.speedup:9.2f}"
            print(f"{layer.name:<28}{times}  {layer.method}")
    print(f"{result.who} (the report says why, one by one)")


def _print_methods(results: Sequence[NetworkResult]) -> None:
    print(f"\n{'each method by name':<34}{'layers':>12}{'native ms':>12}{'with it':>12}{'faster':>9}")
    for result in results:
        for each in result.forced:
            native, forced = each.whole_us
            counts = f"{each.layers} of {len(result.layers)}"
            print(
                f"{result.title + ', ' + each.method:<34}{counts:>12}{native / 1e3:12.2f}{forced / 1e3:12.2f}"
                f"{native / forced:9.2f}"
            )


def print_filters(filtered: Sequence[FilterResult]) -> None:
    print(f"\n{'the photo, filtered':<34}{'native us':>12}{'convx us':>12}{'faster':>9}  error native, convx")
    for each in filtered:
        times = f"{each.native_us:12.1f}{each.convx_us:12.1f}{each.speedup:9.2f}"
        verdict = "agree" if each.agrees else "DISAGREE"
        print(f"{each.name:<34}{times}  {each.native_error:.1e}, {each.convx_error:.1e}  {verdict}")
