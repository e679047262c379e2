#!/usr/bin/env python3
"""Checks that diagnostics, labels and their tests agree (house style, section 4).

1. Every emitError/emitOpError in lib/ is expected by a test in test/.
2. Every label (`// dot C3` in lib/Dialect) is in its dialect's SPEC.md and names
   a test function (`@dot_c3...`), and no SPEC.md has a label that the verifier
   or the tests lack.

Prints one line per disagreement and exits 1 if there is any.
"""
import argparse
import pathlib
import re
import sys

EMIT = re.compile(r"\bemit(?:Op)?Error\(")
# Adjacent string literals are one literal; escaped quotes are part of it.
LITERAL = re.compile(r'"(?:[^"\\]|\\.)*"(?:\s*"(?:[^"\\]|\\.)*")*')
LABEL = re.compile(r"^\s*// ([a-z][a-z0-9_]*) (C\d+)$", re.M)
SPEC_LABEL = re.compile(r"^\| (C\d+) \|", re.M)
SPEC_SECTION = re.compile(r"^## (?:`?[a-z]+\.)?([a-z0-9_]+)`?", re.M)


def unquote(literal):
    parts = re.findall(r'"((?:[^"\\]|\\.)*)"', literal)
    return "".join(parts).replace('\\"', '"').replace("\\\\", "\\")


def emitted(source):
    """(line, longest literal) of every emitted error that has a literal."""
    for match in EMIT.finditer(source):
        end = source.find(";", match.start())
        literals = LITERAL.findall(source[match.start():end])
        if literals:
            line = source.count("\n", 0, match.start()) + 1
            yield line, max(map(unquote, literals), key=len)


def expectations(root):
    """All text of the tests in which an error is expected."""
    texts = []
    for path in sorted((root / "test").rglob("*")):
        if path.suffix in (".mlir", ".test"):
            texts += [line for line in path.read_text().splitlines()
                      if "expected-error" in line or "error: " in line
                      or "kdac: " in line or "CHECK" in line]
        elif path.suffix == ".cpp":
            texts.append(re.sub(r'"\s*\n\s*"', "", path.read_text()))
    return "\n".join(texts)


def check_errors(root):
    expected = expectations(root)
    for path in sorted((root / "lib").rglob("*.cpp")):
        for line, text in emitted(path.read_text()):
            if text.strip() not in expected:
                yield f"{path.relative_to(root)}:{line}: no test expects: {text}"


def spec_labels(path):
    """Labels of a SPEC.md: rows `| C1 | ...` of the section of their op."""
    text = path.read_text()
    sections = list(SPEC_SECTION.finditer(text))
    ends = [s.start() for s in sections[1:]] + [len(text)]
    return {(section.group(1), label)
            for section, end in zip(sections, ends)
            for label in SPEC_LABEL.findall(text[section.start():end])}


def check_labels(root):
    for name in ("Dplr", "Tile", "Triton"):
        source = root / "lib/Dialect" / f"{name}Ops.cpp"
        spec = root / "dialect" / name / "SPEC.md"
        tests = (root / "test/Dialect" / f"{name.lower()}-errors.mlir").read_text()
        verified = set(LABEL.findall(source.read_text()))
        documented = spec_labels(spec)
        if not verified:
            yield f"{source.relative_to(root)}: no labels found"
        for op, label in sorted(verified - documented):
            yield f"{spec.relative_to(root)}: {op} {label} is verified but missing"
        for op, label in sorted(documented - verified):
            yield f"{source.relative_to(root)}: {op} {label} is specified but not verified"
        for op, label in sorted(verified | documented):
            if not re.search(rf"@{op}_{label.lower()}(_|\()", tests) and \
               not re.search(rf"@{op}_{label.lower()}\b", tests):
                yield f"test/Dialect/{name.lower()}-errors.mlir: no test of {op} {label}"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("root", type=pathlib.Path, help="the repository")
    root = parser.parse_args().root
    problems = list(check_errors(root)) + list(check_labels(root))
    for problem in problems:
        print(problem)
    print(f"{len(problems)} disagreements")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
