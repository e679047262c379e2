#!/usr/bin/env python3
"""kdac-ttir-cases judges what a GPU run left behind: a run that wrote nothing,
one whose text differs, one that failed and one that is missing are refused, and
nothing of them enters the ledger. What the interpreter computes is accepted, and
its lines are ledger lines.

  judge_test.py KDAC_TTIR_CASES
"""

import hashlib
import json
import os
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "..", "python"))
from ledger import read_lines  # noqa: E402


def sha256(path):
    with open(path, "rb") as file:
        return hashlib.sha256(file.read()).hexdigest()


def pretend(directory, out):
    """Results as of a run that changed no memory."""
    with open(os.path.join(directory, "cases.json"), encoding="utf-8") as file:
        cases = json.load(file)
    entries = []
    for case in cases:
        stem = os.path.join(directory, case["name"])
        with open(stem + ".bin", "rb") as file:
            raw = file.read()
        at, written = 0, b""
        for buffer in case["buffers"]:
            size = buffer["bytes"] + 2 * buffer["guard"]
            if buffer["written"]:
                written += raw[at:at + size]
            at += size
        assert at == len(raw), case["name"]
        with open(os.path.join(out, case["name"] + ".out"), "wb") as file:
            file.write(written)
        entries.append({"name": case["name"], "us": 1.0, "options": "",
                        "ptx_sha256": "", "ttir_sha256": sha256(stem + ".ttir")})
    return {"gpu": "none", "driver": "0", "triton": "0", "ptxas": "0",
            "commit": "0", "date": "0", "cases": entries}


def judge(tool, out, results, ledger):
    with open(os.path.join(out, "results.json"), "w", encoding="utf-8") as file:
        json.dump(results, file)
    run = subprocess.run([tool, "judge", out, ledger], capture_output=True,
                         text=True)
    lines = dict(line.split(" ", 2)[1:] for line in
                 run.stdout.replace("ok     ", "ok ").splitlines()[:-1]
                 if line.startswith(("ok ", "FAILED ")))
    return run.returncode, {k.rstrip(":"): v for k, v in lines.items()}


def main():
    tool = sys.argv[1]
    with tempfile.TemporaryDirectory() as folder:
        directory, out = folder + "/in", folder + "/out"
        os.mkdir(out)
        subprocess.run([tool, "prepare", directory], check=True)
        results = pretend(directory, out)
        good = ["kda-step", "kda-step-pool", "delta-chunk"]
        for name in good:
            subprocess.run([tool, "interpret", out, name], check=True)
        results["cases"][1]["ttir_sha256"] = "0"
        results["cases"][2]["error"] = "OutOfResources: too small"
        del results["cases"][3]
        code, lines = judge(tool, out, results, folder + "/ledger")
        with open(directory + "/cases.json", encoding="utf-8") as file:
            names = [case["name"] for case in json.load(file)]
        expected = ["unwritten", "ran other Triton IR", "OutOfResources",
                    "did not run"]
        wrong = [f"{name}: expected '{text}', but got '{lines.get(name)}'"
                 for name, text in zip(names, expected)
                 if text not in lines.get(name, "")]
        wrong += [f"{name}: expected 'unwritten', but got '{lines.get(name)}'"
                  for name in names[4:] if name not in good
                  and "unwritten" not in lines.get(name, "")]
        ledger = folder + "/ledger"
        merged = read_lines(ledger)
        if code != 1 or len(merged) != len(good):
            wrong.append(f"exit code {code}, lines '{merged}'")
        print("\n".join(wrong) or f"{len(names) - len(good)} cases refused, "
              f"{len(good)} accepted")
        return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
