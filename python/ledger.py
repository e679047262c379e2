#!/usr/bin/env python3
"""The GPU ledger: which kernels have been run on which GPU, how close and how fast.

test/gpu/ledger.jsonl holds one JSON object a line, written by kdac-gpu-test:
variant, case, gpu, driver, llvm, ptxas, ptx_sha256, commit, date, err, us,
floor_us and, where a competitor was timed on the same case, peer.

  ledger.py merge NEW... [--peers FILE...]   take lines over; sort; drop what they replace
  ledger.py missing PACK... [--gpu TEXT]     variants nobody has run as they are now; exit 1 if any,
            [--expect FILE | --write FILE]   or, with --expect, if they are not those of FILE
  ledger.py prune PACK...                    drop lines of older code of the packs' variants, but
                                             those with a peer's time
  ledger.py show [--filter TEXT]             a table of times and errors
  ledger.py table [--write | --check] [DOC]  prefill beside its peer, as docs/PERFORMANCE.md
                                             has it between two comments

A new line replaces an old one of the same variant, case (whatever the seed of
its inputs), PTX digest, GPU, driver and assembler. Standard library only.
"""

import argparse
import json
import os
import re
import struct
import sys

FIELDS = ["variant", "case", "gpu", "driver", "llvm", "ptxas", "ptx_sha256",
          "commit", "date", "err", "us", "floor_us"]
CASE_FIELDS = ["recurrence", "form", "B", "T", "N", "lengths", "H", "HV", "K",
               "V", "gate", "dtype", "state_dtype", "precision", "schedule",
               "inputs"]
DEFAULT = os.path.join(os.path.dirname(__file__), "..", "test", "gpu",
                       "ledger.jsonl")
PACK_MAGIC = b"\x89KDAC\r\n\n"
PACK_VERSIONS = (1, 2, 3)
# What a peer's line and a ledger line must share to be about the same work.
PEER_FIELDS = ["recurrence", "form", "B", "T", "N", "lengths", "H", "HV", "K",
               "V", "gate", "dtype", "state_dtype"]


class Refusal(Exception):
    """A sentence for the user; exit code 2."""


def check_line(line, where):
    """Refuses a line that is not a ledger entry."""
    for fields, value, what in ((FIELDS, line, "a ledger line"),
                                (CASE_FIELDS, line.get("case"), "its case")):
        if not isinstance(value, dict):
            raise Refusal(f"{where}: expected {what} to be an object")
        for name in fields:
            if name not in value:
                raise Refusal(f"{where}: {what} has no field '{name}'")
    return line


def read_lines(path, check=check_line):
    """The entries of a file of JSON lines."""
    entries = []
    try:
        with open(path, encoding="utf-8") as file:
            for number, text in enumerate(file, 1):
                if not text.strip():
                    continue
                where = f"{path}:{number}"
                try:
                    value = json.loads(text)
                except ValueError as error:
                    raise Refusal(f"{where}: not JSON: {error}") from None
                if not isinstance(value, dict):
                    raise Refusal(f"{where}: expected an object")
                entries.append(check(value, where))
    except OSError as error:
        raise Refusal(f"cannot read '{path}': {error.strerror}") from None
    return entries


def key_of(line):
    """What makes a line unique: its case without the seed."""
    case = dict(line["case"])
    case["inputs"] = re.sub(r" ?seed=\d+", "", case["inputs"])
    return json.dumps([line["variant"], case, line["ptx_sha256"], line["gpu"],
                       line["driver"], line["ptxas"]], sort_keys=True)


def attach_peers(lines, peers):
    """Adds `peer` to the timed lines of the same work on the same GPU."""
    count = 0
    for peer in peers:
        for line in lines:
            same = (line["gpu"] == peer["gpu"]
                    and line["case"]["inputs"].startswith("random periodic")
                    and all(line["case"][name] == peer["case"][name]
                            for name in PEER_FIELDS if name in peer["case"]))
            if same:
                line["peer"] = {"name": peer["peer"]["name"],
                                "us": peer["peer"]["us"]}
                count += 1
    return count


def check_peer(line, where):
    for name in ("case", "gpu", "peer"):
        if name not in line:
            raise Refusal(f"{where}: a peer line has no field '{name}'")
    return line


def write_lines(path, lines):
    temporary = f"{path}.tmp.{os.getpid()}"
    with open(temporary, "w", encoding="utf-8") as file:
        for line in lines:
            file.write(json.dumps(line, separators=(",", ":")) + "\n")
    os.replace(temporary, path)


def merge(options):
    known = {}
    old = read_lines(options.ledger) if os.path.exists(options.ledger) else []
    new = [line for path in options.new for line in read_lines(path)]
    for line in old + new:
        known[key_of(line)] = line
    lines = [known[key] for key in sorted(known)]
    peers = [peer for path in options.peers
             for peer in read_lines(path, check_peer)]
    attached = attach_peers(lines, peers)
    write_lines(options.ledger, lines)
    print(f"{options.ledger}: {len(lines)} lines, {len(lines) - len(old):+d}; "
          f"{attached} with a peer from {len(peers)} peer lines")
    return 0


def read_manifest(path):
    """The manifest of a .kdac file (lib/Pack/Format.h); the runtime verifies."""
    try:
        with open(path, "rb") as file:
            header = file.read(128)
            if len(header) < 128 or header[:8] != PACK_MAGIC:
                raise Refusal(f"'{path}' is not a kdac pack")
            version, _, size = struct.unpack("<IIQ", header[8:24])
            if version not in PACK_VERSIONS:
                raise Refusal(f"'{path}' has pack version {version}, but this "
                              "script reads versions 1 to 3")
            return json.loads(file.read(size))
    except OSError as error:
        raise Refusal(f"cannot read '{path}': {error.strerror}") from None
    except ValueError as error:
        raise Refusal(f"'{path}' has a damaged manifest: {error}") from None


def gpu_variants(manifest):
    """(name, PTX digest) of every variant for a GPU."""
    for variant in manifest["variants"]:
        if variant["variant"]["target"] != "host":
            yield variant["name"], variant["launches"][0]["ptx_sha256"]


def missing(options):
    seen = {(line["variant"], line["ptx_sha256"])
            for line in read_lines(options.ledger)
            if options.gpu in line["gpu"]}
    named = {name for name, _ in seen}
    total, absent = 0, []
    for path in options.packs:
        for name, digest in gpu_variants(read_manifest(path)):
            total += 1
            if (name, digest) not in seen:
                absent.append((name, "other PTX was run" if name in named
                               else "never run"))
    for name, why in absent:
        print(f"{name}: {why}")
    print(f"{total - len(absent)} of {total} variants have been run"
          + (f" on {options.gpu}" if options.gpu else ""))
    names = sorted(name for name, _ in absent)
    if options.write:
        with open(options.write, "w", encoding="utf-8") as file:
            file.writelines(name + "\n" for name in names)
        return 0
    return differs(names, options.expect) if options.expect else bool(names)


def prune(options):
    present = {}
    for path in options.packs:
        for name, digest in gpu_variants(read_manifest(path)):
            present.setdefault(name, set()).add(digest)
    old = read_lines(options.ledger)
    lines = [line for line in old
             if "peer" in line or line["variant"] not in present
             or line["ptx_sha256"] in present[line["variant"]]]
    write_lines(options.ledger, lines)
    print(f"{options.ledger}: {len(lines)} lines, {len(lines) - len(old):+d}")
    return 0


def differs(names, path):
    """1 if the file at `path` does not list exactly `names`, one a line."""
    try:
        with open(path, encoding="utf-8") as file:
            expected = set(file.read().split())
    except OSError as error:
        raise Refusal(f"cannot read '{path}': {error.strerror}") from None
    for name in sorted(set(names) - expected):
        print(f"{name}: its code changed since it was run; run it on a GPU, or "
              f"list it in {os.path.basename(path)}")
    for name in sorted(expected - set(names)):
        print(f"{name}: has been run; take it off {os.path.basename(path)}")
    return int(set(names) != expected)


def shape_of(case):
    tokens = ("+".join(map(str, case["lengths"])) if case["lengths"]
              else str(case["T"]))
    heads = (str(case["H"]) if case["H"] == case["HV"]
             else f"{case['H']}:{case['HV']}")
    return f"{case['form']}:{case['N']}:{tokens}:{heads}"


def show(options):
    rows = [("variant", "shape", "us", "floor", "% of floor", "err out",
             "err state", "peer us", "gpu")]
    for line in read_lines(options.ledger):
        if options.filter not in json.dumps(line):
            continue
        us, floor, state = line["us"], line["floor_us"], line["err"]["state"]
        rows.append((line["variant"], shape_of(line["case"]), f"{us:g}",
                     f"{floor:g}", f"{100 * floor / us:.0f}" if us else "-",
                     f"{line['err']['out']:.2g}",
                     "-" if state is None else f"{state:.2g}",
                     f"{line['peer']['us']:g}" if "peer" in line else "-",
                     line["gpu"]))
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    for row in rows:
        print("  ".join(text.ljust(width)
                        for text, width in zip(row, widths)).rstrip())
    return 0


# The comparison table: chunk forms at K = V = 128 in bf16, f32 state.
TABLE_KERNELS = {"KDA bounded": "kda.chunk.k128v128.bf16.f32vk.bounded.sm_90a",
                 "KDA softplus": "kda.chunk.k128v128.bf16.f32vk.softplus.sm_90a",
                 "Gated DeltaNet": "gated_delta.chunk.k128v128.bf16.f32vk."
                                   "softplus.sm_90a"}
TABLE_SHAPES = ["chunk:1:8192:96", "chunk:1:8192:64", "chunk:1:8192:32",
                "chunk:1:8192:12", "chunk:8:1024:96",
                "chunk:6:1300+547+2048+963+271+3063:96", "chunk:1:512:64",
                "chunk:1:32768:8"]
TABLE_BEGIN = "<!-- ledger.py table -->"
TABLE_END = "<!-- end of table -->"
DOC = os.path.join(os.path.dirname(__file__), "..", "docs", "PERFORMANCE.md")


def is_tabled(line, variant):
    return (line["us"] and line["variant"] == variant
            and line["case"]["inputs"].startswith("random periodic"))


def table_rows(lines):
    """For every kernel and shape the newest time of the PTX that ran last, with
    the newest peer's: a time of older code is no time of this kernel."""
    rows = []
    for kernel, variant in TABLE_KERNELS.items():
        timed = sorted((line for line in lines if is_tabled(line, variant)),
                       key=lambda line: line["date"])
        for shape in TABLE_SHAPES:
            same = [line for line in timed if shape_of(line["case"]) == shape]
            present = [line for line in same
                       if line["ptx_sha256"] == timed[-1]["ptx_sha256"]]
            if not present:
                continue
            peers = [line["peer"] for line in same if "peer" in line]
            rows.append((kernel, shape, present[-1],
                         peers[-1] if peers else None))
    return rows


def table_text(lines):
    text = ["| kernel | shape | floor | kdac | of the floor | peer | peer / kdac |",
            "|---|---|---|---|---|---|---|"]
    for kernel, shape, line, peer in table_rows(lines):
        us, floor = line["us"], line["floor_us"]
        beside = (f"{peer['us']:.0f} ({peer['name']}) | {peer['us'] / us:.1f}"
                  if peer else "- | -")
        text.append(f"| {kernel} | `{shape}` | {floor:.0f} \u00b5s | **{us:.0f}** | "
                    f"{100 * floor / us:.0f} % | {beside} |")
    return "\n".join(text)


def table(options):
    text = table_text(read_lines(options.ledger))
    if not options.write and not options.check:
        print(text)
        return 0
    try:
        with open(options.doc, encoding="utf-8") as file:
            old = file.read()
    except OSError as error:
        raise Refusal(f"cannot read '{options.doc}': {error.strerror}") from None
    begin, end = old.find(TABLE_BEGIN), old.find(TABLE_END)
    if begin < 0 or end < begin:
        raise Refusal(f"'{options.doc}' has no '{TABLE_BEGIN}' before a "
                      f"'{TABLE_END}'")
    new = old[:begin + len(TABLE_BEGIN)] + "\n" + text + "\n" + old[end:]
    if options.check:
        if new != old:
            print(f"'{options.doc}' has another table than the ledger; run "
                  "`ledger.py table --write`")
        return int(new != old)
    temporary = f"{options.doc}.tmp.{os.getpid()}"
    with open(temporary, "w", encoding="utf-8") as file:
        file.write(new)
    os.replace(temporary, options.doc)
    return 0


def parse(arguments):
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ledger", default=DEFAULT,
                        help="the ledger (default test/gpu/ledger.jsonl)")
    commands = parser.add_subparsers(dest="command", required=True)
    command = commands.add_parser("merge")
    command.add_argument("new", nargs="*")
    command.add_argument("--peers", nargs="*", default=[],
                         help="lines of bench_fla.py")
    command.set_defaults(run=merge)
    command = commands.add_parser("missing")
    command.add_argument("packs", nargs="+")
    command.add_argument("--gpu", default="", help="part of the GPU's name")
    command.add_argument("--expect", help="file of names that may be missing")
    command.add_argument("--write", help="write the missing names to a file")
    command.set_defaults(run=missing)
    command = commands.add_parser("prune")
    command.add_argument("packs", nargs="+")
    command.set_defaults(run=prune)
    command = commands.add_parser("show")
    command.add_argument("--filter", default="", help="part of the line")
    command.set_defaults(run=show)
    command = commands.add_parser("table")
    command.add_argument("doc", nargs="?", default=DOC)
    command.add_argument("--write", action="store_true")
    command.add_argument("--check", action="store_true",
                         help="exit 1 if the document has another table")
    command.set_defaults(run=table)
    return parser.parse_args(arguments)


def main(arguments=None):
    options = parse(arguments)
    try:
        return options.run(options)
    except Refusal as refusal:
        print(f"ledger.py: {refusal}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
