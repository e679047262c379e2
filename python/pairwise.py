#!/usr/bin/env python3
"""Writes packs/default.yaml: few variants that cover every pair of options.

Greedy pairwise covering: each new variant is the best of many random valid ones,
seeded with a pair not covered yet. Seeded, so that the same tables give the same
file. test/Pipeline/DefaultPackTest.cpp proves coverage with kdac's own rules; the
tables here only have to be good enough to find the variants.

    python3 python/pairwise.py > packs/default.yaml
"""
import itertools
import random

DIMS = [32, 64, 96, 128, 192, 256]
OPTIONS = {
    "recurrence": ["kda", "gated_delta", "delta", "gla", "simple_gla",
                   "retention", "linear", "dplr"],
    "form": ["chunk", "step"],
    "key-dim": DIMS,
    "value-dim": DIMS,
    "dtype": ["bf16", "f16", "f32"],
    "state-dtype": ["f32", "bf16"],
    "state-layout": ["vk", "kv"],
    "gate": ["bounded", "softplus", "identity", "none"],
    "gate-dtype": ["bf16", "f16", "f32"],
    "beta": ["sigmoid", "2sigmoid", "identity", "none"],
    "l2norm": ["true", "false"],
    "offsets": ["i32", "i64"],
    "precision": ["default", "fast", "high"],
}
GATES = {  # what kdac::resolve accepts, per recurrence
    "kda": ["bounded", "softplus", "identity"],
    "gla": ["bounded", "softplus", "identity"],
    "dplr": ["bounded", "softplus", "identity"],
    "gated_delta": ["softplus", "identity"],
    "simple_gla": ["softplus", "identity"],
    "retention": ["identity"],
    "delta": ["none"],
    "linear": ["none"],
}
WITH_BETA = ["kda", "gated_delta", "delta"]

COMMON = {"key-dim": 128, "value-dim": 128, "dtype": "bf16",
          "state-dtype": "f32", "state-layout": "vk", "offsets": "i32",
          "precision": "default"}


def usual(recurrence, form, gate, **options):
    """A variant with the options most models use."""
    beta = "sigmoid" if recurrence in WITH_BETA else "none"
    return {"recurrence": recurrence, "form": form, "gate": gate,
            "gate-dtype": "f32" if gate == "identity" else "bf16",
            "beta": beta, "l2norm": "true" if beta != "none" else "false",
            **COMMON, **options}


# What people use: KDA in all square sizes, then the rest of the family.
ALWAYS = [
    usual("kda", form, gate, **{"key-dim": dim, "value-dim": dim})
    for dim in (128, 32, 64, 96, 192, 256)
    for gate in ("bounded", "softplus") for form in ("chunk", "step")
] + [
    usual(recurrence, form, GATES[recurrence][-1 if recurrence == "gla" else 0])
    for recurrence in ("gated_delta", "delta", "gla", "simple_gla",
                       "retention", "linear")
    for form in ("chunk", "step")
]


def valid(variant):
    """False if some chosen options exclude each other."""
    recurrence, gate = variant.get("recurrence"), variant.get("gate")
    beta, form = variant.get("beta"), variant.get("form")
    if recurrence and gate and gate not in GATES[recurrence]:
        return False
    if recurrence and beta and (recurrence in WITH_BETA) == (beta == "none"):
        return False
    if recurrence == "dplr" and form == "chunk":
        return False
    ungated = gate == "none" or recurrence and GATES[recurrence] == ["none"]
    if ungated and "dtype" in variant and \
       variant.get("gate-dtype", variant["dtype"]) != variant["dtype"]:
        return False  # there is no gate to have another type
    if gate and beta:  # some recurrence must allow both
        return any(gate in GATES[r] and (r in WITH_BETA) == (beta != "none")
                   for r in GATES)
    return True


def pairs(variant):
    items = sorted((k, str(v)) for k, v in variant.items())
    return set(itertools.combinations(items, 2))


def all_pairs():
    result = set()
    for a, b in itertools.combinations(OPTIONS, 2):
        for x, y in itertools.product(OPTIONS[a], OPTIONS[b]):
            if valid({a: x, b: y}):
                result |= pairs({a: x, b: y})
    return result


def complete(seed, rng):
    """A random valid variant with the options of `seed`, or None."""
    variant = dict(seed)
    for name in rng.sample(list(OPTIONS), len(OPTIONS)):
        if name in variant:
            continue
        values = [v for v in OPTIONS[name] if valid({**variant, name: v})]
        if not values:
            return None
        variant[name] = rng.choice(values)
    return variant if valid(variant) else None


def cover():
    rng = random.Random(2026)
    variants = list(ALWAYS)
    missing = all_pairs().difference(*map(pairs, variants))
    while missing:
        first = min(missing)
        seed = dict(first)
        for name in ("key-dim", "value-dim"):
            if name in seed:
                seed[name] = int(seed[name])
        candidates = filter(None, (complete(seed, rng) for _ in range(200)))
        best = max(candidates, key=lambda v: len(pairs(v) & missing))
        missing -= pairs(best)
        variants.append(best)
    return variants


def main():
    print("# Written by python/pairwise.py: every pair of options, and the KDA "
          "defaults.\n# test/Pipeline/DefaultPackTest.cpp proves the coverage.\n"
          "targets: [sm_90a]\nvariants:")
    for variant in cover():
        options = ", ".join(f"{name}: {variant[name]}" for name in OPTIONS)
        print(f"  - {{{options}}}")


if __name__ == "__main__":
    main()
