#!/usr/bin/env python3
"""expected.py FOLDER prompts: the prompts of FOLDER/expected.json, one a line.
expected.py FOLDER RESULT.json: fails unless kdac-run --json gave its tokens.
"""
import json
import sys

with open(sys.argv[1] + "/expected.json") as file:
    expected = json.load(file)
if sys.argv[2] == "prompts":
    for one in expected:
        print(json.dumps({"tokens": one["prompt"]}))
    sys.exit()
with open(sys.argv[2]) as file:
    results = json.load(file)["requests"]
got = [result["tokens"] for result in results]
wanted = [one["greedy"] for one in expected]
if got != wanted:
    sys.exit(f"expected.py: expected {wanted}, got {got}")
print("the reference's tokens")
