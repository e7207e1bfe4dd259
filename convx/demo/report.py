"""One HTML file with everything in it: pictures, tables, style."""

from __future__ import annotations

import base64
import html
from typing import Any

from convx.demo import plots
from convx.demo.compare import NetworkResult
from convx.demo.networks import class_names
from convx.demo.template import PAGE


def page(
    results: list[NetworkResult], photo_png: bytes, facts: dict[str, str]
) -> tuple[str, dict[str, bytes]]:
    """The report and its pictures by file name."""
    pictures = {"totals.png": plots.totals(results)}
    sections = [_totals(results, pictures["totals.png"])]
    for result in results:
        name = result.title.lower().replace("-", "")
        pictures[f"{name}_layers.png"] = plots.layer_times(result)
        speedups = plots.layer_speedups(result)
        if speedups is not None:
            pictures[f"{name}_speedups.png"] = speedups
        sections.append(_network(result, pictures[f"{name}_layers.png"], speedups))
    sections.append(_facts(facts))
    introduction = (
        "The networks below ran twice: as torchvision builds them, and with every layer swapped, by "
        "<code>convx.convert_(model)</code>, for which convx has a method. Same weights, same photo, "
        "same run; times are medians of interleaved rounds."
    )
    text = PAGE.format(photo=_embed(photo_png), introduction=introduction, sections="\n".join(sections))
    return text, pictures


def _totals(results: list[NetworkResult], picture: bytes) -> str:
    rows = ""
    for result in results:
        for layout, (native, fast) in result.whole_us.items():
            cells = [f"{native / 1e3:.2f} ms", f"{fast / 1e3:.2f} ms", f"{native / fast:.2f}"]
            rows += f"<tr><td>{result.title}, {layout}</td>{_numbers(cells)}</tr>"
    table = (
        '<table><tr><th>Whole network</th><th class="number">native</th><th class="number">convx</th>'
        f'<th class="number">times faster</th></tr>{rows}</table>'
    )
    return f"<section><h2>Totals</h2>{_image(picture, 'whole networks')}{table}</section>"


def _network(result: NetworkResult, layers: bytes, speedups: bytes | None) -> str:
    converted = [layer for layer in result.layers if layer.converted]
    native_us, convx_us = result.conv_us
    cards = [
        _card(f"{len(converted)} of {len(result.layers)}", "convolutions converted"),
        _card(f"{native_us / 1e3:.2f} → {convx_us / 1e3:.2f} ms", f"all convolutions, {result.layout}"),
    ]
    if converted:
        before, after = sum(x.native_us for x in converted), sum(x.convx_us for x in converted)
        cards.append(_card(f"{before / after:.2f}x", "faster, the converted ones"))
    verdict = "outputs agree" if result.agrees else "outputs disagree"
    cards.append(
        _card(
            f"{result.convx_error:.1e}",
            f"error against float64 (torch {result.native_error:.1e}): {verdict}",
            "good" if result.agrees else "bad",
        )
    )
    head = ("Layer", "What it is", "Input", "Method", "Why")
    note = "" if converted else "<p>No layer was converted: both are the same code, and differ by noise.</p>"
    header = "".join(f"<th>{text}</th>" for text in head)
    methods = [each.method for each in result.forced]
    header += _numbers(("native us", "convx us", "faster", *(f"{name} us" for name in methods)), "th")
    body = ""
    for layer in result.layers:
        converted_cells = [f"{layer.convx_us:.1f}", f"{layer.speedup:.2f}"] if layer.converted else ["", ""]
        forced = [f"{layer.forced_us[name]:.1f}" if name in layer.forced_us else "" for name in methods]
        times = [f"{layer.native_us:.1f}", *converted_cells, *forced]
        texts = [f"<code>{layer.name}</code>", layer.what, layer.shape, layer.method, html.escape(layer.why)]
        body += f'<tr class="{"" if layer.converted else "left"}">'
        body += "".join(f"<td>{text}</td>" for text in texts) + _numbers(times) + "</tr>"
    names = class_names()
    likely = ", ".join(f"{names[index]} {probability:.0%}" for index, probability in result.top_classes)
    return (
        f"<section><h2>{result.title}</h2><div class='cards'>{''.join(cards)}</div>{note}"
        f"{_image(layers, 'time of every convolution')}"
        f"{_image(speedups, 'speed-up of converted layers') if speedups else ''}"
        f"{_forced(result)}"
        f"<div class='scroll'><table><tr>{header}</tr>{body}</table></div>"
        f"{f'<p>Likeliest classes of the photo: {likely}.</p>' if likely else ''}"
        "</section>"
    )


def _forced(result: NetworkResult) -> str:
    """The network with every layer that a method can run given to it."""
    rows = ""
    for each in result.forced:
        native, forced = each.whole_us
        cells = [
            f"{each.layers} of {len(result.layers)}",
            f"{native / 1e3:.2f} ms",
            f"{forced / 1e3:.2f} ms",
            f"{native / forced:.2f}",
            f"{each.error:.1e}",
        ]
        rows += f"<tr><td><code>algorithm={each.method!r}</code></td>{_numbers(cells)}</tr>"
    head = _numbers(
        ("layers it can run", "whole network native", "with it", "times faster", "error against float64"),
        "th",
    )
    return f"<h3>Each method by name</h3><table><tr><th>convx.convert_ with</th>{head}</tr>{rows}</table>"


def _facts(facts: dict[str, str]) -> str:
    rows = "".join(f"<tr><td>{name}</td><td>{html.escape(value)}</td></tr>" for name, value in facts.items())
    return f"<section><h2>Versions and machine</h2><table>{rows}</table></section>"


def _card(value: str, caption: str, kind: str = "") -> str:
    return f'<div class="card {kind}"><b>{value}</b><span>{caption}</span></div>'


def _numbers(cells: Any, tag: str = "td") -> str:
    return "".join(f'<{tag} class="number">{cell}</{tag}>' for cell in cells)


def _image(data: bytes, text: str) -> str:
    return f'<img alt="{text}" src="{_embed(data)}">'


def _embed(data: bytes) -> str:
    return "data:image/png;base64," + base64.b64encode(data).decode()
