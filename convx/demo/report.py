"""One HTML file with everything in it: pictures, tables, style."""

from __future__ import annotations

import base64
import html
import io
from typing import Any

from convx.demo import plots
from convx.demo.compare import NetworkResult
from convx.demo.networks import class_names
from convx.demo.photo_filters import FilterResult
from convx.demo.template import PAGE


def page(
    results: list[NetworkResult], filtered: list[FilterResult], photo: Any, facts: dict[str, str]
) -> tuple[str, dict[str, bytes]]:
    """The report and its pictures by file name."""
    pictures = {"photo.png": _png(photo), "totals.png": plots.totals(results)}
    sections = [_totals(results, pictures["totals.png"])]
    for result in results:
        name = result.title.lower().replace("-", "")
        pictures[f"{name}_layers.png"] = plots.layer_times(result)
        for kind, picture in (
            ("speedups", plots.layer_speedups(result)),
            ("methods", plots.method_speedups(result)),
        ):
            if picture is not None:
                pictures[f"{name}_{kind}.png"] = picture
        own = {kind: pictures.get(f"{name}_{kind}.png") for kind in ("layers", "speedups", "methods")}
        sections.append(_network(result, own))
    pictures |= {f"photo_{each.name}.png": _png(each.picture) for each in filtered}
    sections.append(_filters(filtered, pictures))
    sections.append(_facts(facts))
    introduction = (
        "The networks below ran optimized by <code>convx.optimize(model, images)</code>, as torchvision "
        "builds them, with their convolutions swapped by <code>convx.convert_(model)</code>, and with each "
        "method by its name. Same weights, same photo, same run; times are first quartiles of interleaved "
        "rounds."
    )
    text = PAGE.format(
        photo=_embed(pictures["photo.png"]), introduction=introduction, sections="\n".join(sections)
    )
    return text, pictures


def _totals(results: list[NetworkResult], picture: bytes) -> str:
    rows = ""
    for result in results:
        for each in result.whole:
            cells = [
                _ms(each.optimized_us),
                _ms(each.native_us),
                f"{each.optimized_speedup:.2f}",
                _ms(each.convx_us),
                f"{each.speedup:.2f}",
            ]
            rows += f"<tr><td>{result.title}, {each.label}, batch {result.batch}</td>{_numbers(cells)}</tr>"
    head = _numbers(("optimized", "native", "times faster", "converted", "times faster"), "th")
    table = f"<table><tr><th>Whole network</th>{head}</tr>{rows}</table>"
    return (
        f"<section><h2>Totals</h2>{_image(picture, 'whole networks')}{table}{_eager_and_graph(results)}"
        f"{_errors(results)}</section>"
    )


def _eager_and_graph(results: list[NetworkResult]) -> str:
    """What the two are, where there are two."""
    if len({each.way for result in results for each in result.whole}) == 1:
        return ""
    return (
        "<p>Eager: calls from Python, host and device together; the optimized network's replay a CUDA graph "
        "of its own. Graph: all three captured in CUDA graphs, the device's time.</p>"
    )


def _errors(results: list[NetworkResult]) -> str:
    """How far the results are from float64's, and what was fused."""
    rows = ""
    for result in results:
        errors = (result.optimized_error, result.native_error, result.convx_error)
        cells = _numbers(f"{error:.1e}" for error in errors)
        rows += f"<tr><td>{result.title}</td>{cells}<td>{html.escape(result.fused)}</td></tr>"
    head = _numbers(("optimized", "native", "converted"), "th")
    return (
        f"<table><tr><th>Largest error against float64</th>{head}<th>The optimized network</th></tr>{rows}"
        "</table>"
    )


def _ms(us: float) -> str:
    return f"{us / 1e3:.2f} ms"


def _network(result: NetworkResult, pictures: dict[str, bytes | None]) -> str:
    converted = [layer for layer in result.layers if layer.converted]
    native_us, convx_us = result.conv_us
    cards = [
        _card(
            f"{result.main.optimized_speedup:.2f}x",
            f"faster optimized: {_ms(result.main.optimized_us)}, native {_ms(result.main.native_us)}, "
            f"{result.main.label}",
        ),
        _card(
            f"{len(result.accelerated)} of {len(result.layers)}", "convolutions on convx's kernels, converted"
        ),
        _card(
            f"{native_us / 1e3:.2f} → {convx_us / 1e3:.2f} ms", f"all convolutions converted, {result.layout}"
        ),
    ]
    if converted:
        before, after = sum(x.native_us for x in converted), sum(x.convx_us for x in converted)
        cards.append(_card(f"{before / after:.2f}x", "faster, the converted ones"))
    verdict = "outputs agree" if result.agrees else "outputs disagree"
    cards.append(
        _card(
            f"{result.optimized_error:.1e}",
            f"error against float64, optimized (torch {result.native_error:.1e}, converted "
            f"{result.convx_error:.1e}): {verdict}",
            "good" if result.agrees else "bad",
        )
    )
    note = (
        "" if converted else "<p>No layer was converted: that is the native code, and differs by noise.</p>"
    )
    names = class_names()
    likely = ", ".join(f"{names[index]} {probability:.0%}" for index, probability in result.top_classes)
    return (
        f"<section><h2>{result.title}</h2><div class='cards'>{''.join(cards)}</div>"
        f"<p>{html.escape(result.fused)}</p>{note}"
        f"{_image(pictures['layers'], 'time of every convolution')}"
        f"{_image(pictures['speedups'], 'speed-up of converted layers')}"
        f"{_forced(result, pictures['methods'])}"
        f"{_layers(result)}"
        f"{f'<p>Likeliest classes of the photo: {likely}.</p>' if likely else ''}"
        "</section>"
    )


def _layers(result: NetworkResult) -> str:
    """Every convolution: who runs it, why, and its times."""
    methods = [each.method for each in result.forced]
    header = "".join(f"<th>{text}</th>" for text in ("Layer", "What it is", "Input", "Method, and why"))
    header += _numbers(("native", "convx", "times faster", *methods), "th")
    body = ""
    for layer in result.layers:
        converted = [_us(layer.convx_us), f"{layer.speedup:.2f}"] if layer.converted else ["", ""]
        forced = [_us(layer.forced_us[name]) if name in layer.forced_us else "" for name in methods]
        method = f'{layer.method}<span class="why">{html.escape(layer.why)}</span>'
        texts = [f"<code>{layer.name}</code>", layer.what, layer.shape, method]
        body += f'<tr class="{"" if layer.converted else "left"}">'
        body += "".join(f"<td>{text}</td>" for text in texts)
        body += _numbers([_us(layer.native_us), *converted, *forced]) + "</tr>"
    return (
        "<h3>Layer by layer</h3><p>Microseconds: native, converted with <code>algorithm='auto'</code>, and "
        "by each method that can run the layer.</p>"
        f"<div class='scroll'><table class='layers'><tr>{header}</tr>{body}</table></div>"
    )


def _us(time: float) -> str:
    return f"{time:.1f}" if time < 100 else f"{time:.0f}"


def _forced(result: NetworkResult, picture: bytes | None) -> str:
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
    image = _image(picture, "speed-up with each method")
    return (
        f"<h3>Each method by name</h3>{image}<table><tr><th>convx.convert_ with</th>{head}</tr>{rows}</table>"
    )


def _filters(filtered: list[FilterResult], pictures: dict[str, bytes]) -> str:
    """The photo under filters, and what they took."""
    figures = _figure(pictures["photo.png"], "as it is")
    rows = ""
    for each in filtered:
        figures += _figure(pictures[f"photo_{each.name}.png"], each.name)
        cells = [
            f"{each.native_us:.1f} us",
            f"{each.convx_us:.1f} us",
            f"{each.speedup:.2f}",
            f"{each.native_error:.1e}",
            f"{each.convx_error:.1e}",
        ]
        call, native = (html.escape(text, quote=False) for text in (each.call, each.native_call))
        rows += f"<tr><td>{each.name}</td><td><code>{call}</code></td><td>{native}</td>"
        rows += f"<td>{each.shape}</td>{_numbers(cells)}</tr>"
    head = "".join(f"<th>{text}</th>" for text in ("", "convx.nn", "torch", "image, float32"))
    head += _numbers(
        ("native", "convx", "times faster", "error against float64, native", "convx"),
        "th",
    )
    verdict = "agree" if all(each.agrees for each in filtered) else "disagree"
    return (
        f"<section><h2>The photo, filtered</h2><div class='figures'>{figures}</div>"
        f"<div class='scroll'><table><tr>{head}</tr>{rows}</table></div>"
        f"<p>Native is F.conv2d with the same filters, borders by F.pad; the pictures {verdict}. Errors are "
        "relative to the largest value.</p></section>"
    )


def _figure(data: bytes, caption: str) -> str:
    image = f'<img alt="the photo {caption}" src="{_embed(data)}">'
    return f"<figure>{image}<figcaption>{caption}</figcaption></figure>"


def _facts(facts: dict[str, str]) -> str:
    rows = "".join(f"<tr><td>{name}</td><td>{html.escape(value)}</td></tr>" for name, value in facts.items())
    return f"<section><h2>Versions and machine</h2><table>{rows}</table></section>"


def _card(value: str, caption: str, kind: str = "") -> str:
    return f'<div class="card {kind}"><b>{value}</b><span>{caption}</span></div>'


def _numbers(cells: Any, tag: str = "td") -> str:
    return "".join(f'<{tag} class="number">{cell}</{tag}>' for cell in cells)


def _image(data: bytes | None, text: str) -> str:
    return "" if data is None else f'<img alt="{text}" src="{_embed(data)}">'


def _png(pixels: Any) -> bytes:
    """Of height x width (x 3) bytes."""
    from PIL import Image

    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, format="png")
    return buffer.getvalue()


def _embed(data: bytes) -> str:
    return "data:image/png;base64," + base64.b64encode(data).decode()
