#!/usr/bin/env python3
"""model_times.py TIMES.json [--svg FILE]: what kdac-run --time-decode and
--time-prefill measured (lines of JSON, as test/gpu/run-models.sh writes them) as
Markdown tables, and the decode curve as a plot.
"""
import argparse
import json
import math

COPY = 4.27e12  # bytes/s of a device copy on an H200, docs/PERFORMANCE.md


def read(path):
    with open(path) as file:
        return [one for line in file if line.startswith("[")
                for one in json.loads(line)]


def curve(entries, batch):
    """{context: {model: ms}} of one number of sequences."""
    out = {}
    for e in entries:
        if e.get("batch") == batch and "decode_ms" in e:
            out.setdefault(e["context"], {})[e["model"]] = e["decode_ms"]
    return {c: m for c, m in sorted(out.items()) if len(m) == 2}


def size(tokens):
    for unit, name in ((1 << 20, "M"), (1 << 10, "K")):
        if tokens % unit == 0:
            return f"{tokens // unit}{name}"
    return str(tokens)


def decode_table(entries):
    rows = ["| sequences | context | hybrid | all MLA | all MLA / hybrid |",
            "|---|---|---|---|---|"]
    for batch in sorted({e["batch"] for e in entries if "decode_ms" in e}):
        for context, ms in curve(entries, batch).items():
            hybrid, mla = ms["hybrid"], ms["all MLA"]
            rows.append(f"| {batch} | {size(context)} | {hybrid:.2f} ms | "
                        f"{mla:.2f} ms | {mla / hybrid:.2f} |")
    return rows


def floor_line(entries):
    first = min((e for e in entries if e.get("model") == "hybrid" and
                 e.get("batch") == 1 and "decode_ms" in e),
                key=lambda e: e["context"])
    floor = first["active_weight_bytes"] / COPY * 1e3
    return (f"At {size(first['context'])} tokens a token takes "
            f"{first['decode_ms'] / floor:.2f} times the {floor:.2f} ms that "
            f"reading {first['active_weight_bytes'] / 1e9:.2f} GB of active "
            "weights once takes.")


def prefill_table(entries):
    rows = ["| prompt | dense products | time | TFLOP/s |", "|---|---|---|---|"]
    for e in entries:
        if "prefill_ms" in e:
            rows.append(f"| {size(e['prompt'])} | {e['products']} | "
                        f"{e['prefill_ms']:.0f} ms | "
                        f"{e['tflops']:.0f} |")
    return rows


def svg(entries):
    """Milliseconds a token over the context, one sequence, both axes from 0 or
    logarithmic where contexts double."""
    points = curve(entries, 1)
    width, height, left, bottom, top = 640, 360, 60, 48, 16
    contexts = list(points)
    low, high = math.log2(contexts[0]), math.log2(contexts[-1])
    most = math.ceil(max(m for ms in points.values() for m in ms.values()))

    def x(context):
        return left + (math.log2(context) - low) / (high - low) * \
            (width - left - 100)

    def y(ms):
        return height - bottom - ms / most * (height - bottom - top)

    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} '
           f'{height}" font-family="sans-serif" font-size="12">',
           f'<rect width="{width}" height="{height}" fill="white"/>']
    for ms in range(0, most + 1, max(1, most // 6)):
        out.append(f'<path d="M{left} {y(ms):.1f}H{width - 100}" '
                   'stroke="#ddd"/>'
                   f'<text x="{left - 8}" y="{y(ms) + 4:.1f}" '
                   f'text-anchor="end">{ms}</text>')
    for context in contexts:
        out.append(f'<text x="{x(context):.1f}" y="{height - bottom + 18}" '
                   f'text-anchor="middle">{size(context)}</text>')
    for model, colour in (("all MLA", "#c0392b"), ("hybrid", "#1f5fa8")):
        path = " ".join(f"{x(c):.1f},{y(ms[model]):.1f}"
                        for c, ms in points.items())
        last = points[contexts[-1]][model]
        out.append(f'<polyline points="{path}" fill="none" stroke="{colour}" '
                   'stroke-width="2"/>')
        for c, ms in points.items():
            out.append(f'<circle cx="{x(c):.1f}" cy="{y(ms[model]):.1f}" '
                       f'r="3" fill="{colour}"/>')
        out.append(f'<text x="{width - 94}" y="{y(last) + 4:.1f}" '
                   f'fill="{colour}">{model}</text>')
    out.append(f'<text x="{(left + width - 100) / 2}" y="{height - 10}" '
               'text-anchor="middle">tokens in the caches</text>'
               f'<text transform="translate(16 {height / 2}) rotate(-90)" '
               'text-anchor="middle">ms a token</text></svg>')
    return "\n".join(out) + "\n"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("times")
    parser.add_argument("--svg")
    arguments = parser.parse_args()
    entries = read(arguments.times)
    print("\n".join(decode_table(entries)), floor_line(entries),
          "\n".join(prefill_table(entries)), sep="\n\n")
    if arguments.svg:
        with open(arguments.svg, "w") as file:
            file.write(svg(entries))
