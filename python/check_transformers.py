#!/usr/bin/env python3
"""check_transformers.py FOLDER...: the f64 reference against transformers.

python/model_reference.py and the runtime were written from one document; this
compares the reference's logits and greedy tokens with the public implementation
of Kimi Linear in the transformers library (5.17 and later), in f32, and fails
where they differ by more than TOLERANCE. FOLDER is a tiny checkpoint with its
expected.json. Needs `pip install torch transformers`; no test runs it, and there
is no such implementation of Kimi K3 yet.
"""
import json
import os
import shutil
import sys
import tempfile

TOLERANCE = 1e-5  # relative, of a row of logits: f32 against f64


def made_ready(folder, to):
    """A copy of the checkpoint as this library takes it: it has no layer in
    neither list, and wants its padding token in the vocabulary."""
    shutil.copytree(folder, to)
    path = os.path.join(to, "config.json")
    with open(path) as file:
        config = json.load(file)
    linear = config["linear_attn_config"]
    linear["full_attn_layers"] = [
        i for i in range(1, config["num_hidden_layers"] + 1)
        if i not in linear["kda_layers"]]
    config.update(pad_token_id=0, bos_token_id=1)
    with open(path, "w") as file:
        json.dump(config, file)


def logits_of(model, tokens):
    import torch
    with torch.no_grad():
        return model(torch.tensor([tokens])).logits[0, -1].double().numpy()


def check(folder):
    import numpy as np
    import torch
    from transformers import KimiLinearForCausalLM
    with tempfile.TemporaryDirectory() as scratch:
        ready = os.path.join(scratch, "model")
        made_ready(folder, ready)
        model, info = KimiLinearForCausalLM.from_pretrained(
            ready, dtype=torch.float32, attn_implementation="eager",
            experts_implementation="eager", output_loading_info=True)
    strange = [key for key, names in info.items() if len(names) > 0]
    if strange:
        sys.exit(f"check_transformers.py: {folder}: {strange}")
    with open(os.path.join(folder, "expected.json")) as file:
        expected = json.load(file)
    worst, tokens = 0, 0
    for one in expected:
        sequence = list(one["prompt"])
        for want, token in zip(one["logits"], one["greedy"]):
            got, want = logits_of(model.eval(), sequence), np.array(want)
            worst = max(worst,
                        np.linalg.norm(got - want) / np.linalg.norm(want))
            tokens += int(got.argmax()) == token
            sequence.append(token)
    count = sum(len(one["greedy"]) for one in expected)
    print(f"{folder}: {tokens} of {count} greedy tokens, logits within "
          f"{worst:.1e}")
    return tokens == count and worst < TOLERANCE


if __name__ == "__main__":
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    sys.exit(0 if all([check(folder) for folder in sys.argv[1:]]) else 1)
