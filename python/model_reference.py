#!/usr/bin/env python3
"""model_reference.py FOLDER: the forward pass of a hybrid model in f64.

Written from hybrid-model.md, independently of the runtime: token by token,
without caches, blocks or fusion. Writes FOLDER/expected.json: prompts, the
greedy tokens that follow them, the logits at each of these steps, and of the
second prompt what KDA layer CACHED_LAYER keeps: its first head's state [V, K]
and the last four inputs, oldest first, of its first channels' convolution; and
its logits with OTHER_EPS in place of rms_norm_eps but for the output norm, whose
kernel has it built in: the right 1e-5 and a wrong 1e-6 differ by less than f32.

`--traps` computes the same logits with one wrong choice at a time (a 0-based
layer list, biased router weights, ...) and fails where one of them does not
change the logits far more than the runtime's tolerance: then the checkpoint
could not tell a runtime with that error from a correct one.
"""
import argparse
import json
import os
import struct
import sys

import numpy as np

PROMPT_LENGTHS = [1, 5, 33, 70]
NEW_TOKENS = 8
CACHED_LAYER, CACHED_CHANNELS = 2, 8
OTHER_EPS = 0.1
LEAST_MARGIN = 1e-3  # between the two best logits, so that greedy is decided
LEAST_CHANGE = 3e-3  # of a trap, relative; the runtime's tolerance is 3e-5
LEAST_ROUNDING = 2e-4  # of a trap that rounds what must be f32

E2M1 = np.array([0, .5, 1, 1.5, 2, 3, 4, 6])


def read_safetensors(path):
    with open(path, "rb") as file:
        data = file.read()
    size, = struct.unpack("<Q", data[:8])
    header = json.loads(data[8:8 + size])
    tensors = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        begin, end = entry["data_offsets"]
        raw = data[8 + size + begin:8 + size + end]
        if entry["dtype"] == "BF16":
            bits = np.frombuffer(raw, np.uint16).astype(np.uint32) << 16
            values = bits.view(np.float32).astype(np.float64)
        elif entry["dtype"] == "F32":
            values = np.frombuffer(raw, np.float32).astype(np.float64)
        else:
            values = np.frombuffer(raw, np.uint8)
        tensors[name] = values.reshape(entry["shape"])
    return tensors


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def silu(x):
    return x * sigmoid(x)


def softplus(x):
    return np.where(x > 20, x, np.log1p(np.exp(np.minimum(x, 20))))


def to_bf16(x):
    """The nearest value with 8 significant bits."""
    bits = np.asarray(x, np.float32).view(np.uint32).astype(np.uint64)
    bits = (bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000
    return bits.astype(np.uint32).view(np.float32).astype(np.float64)


def rms(x, weight, eps):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * weight


class Model:
    def __init__(self, folder, traps=()):
        self.traps = set(traps)
        with open(os.path.join(folder, "config.json")) as file:
            config = json.load(file)
        self.prefix = "language_model." if "text_config" in config else ""
        self.c = config.get("text_config", config)
        self.linear = self.c["linear_attn_config"]
        self.tensors, self.unpacked = {}, {}
        self.kept = {}  # what KDA layers keep behind a prompt, by layer
        for name in sorted(os.listdir(folder)):
            if name.endswith(".safetensors"):
                self.tensors.update(read_safetensors(os.path.join(folder, name)))
        self.eps = self.output_eps = self.c["rms_norm_eps"]
        self.latent_eps = self.eps if "latent_eps" in self.traps else 1e-6

    def w(self, name):
        return self.tensors[self.prefix + name]

    def linear_map(self, x, name):
        return x @ self.w(name + ".weight").T

    def packed(self, name):
        """An MXFP4 matrix: low nibble first, 2^(s-127) for 32 inputs."""
        if name in self.unpacked:
            return self.unpacked[name]
        packed, scale = (self.w(f"{name}.weight_{part}")
                         for part in ("packed", "scale"))
        nibbles = np.stack([packed & 15, packed >> 4], -1)
        if "nibbles" in self.traps:
            nibbles = nibbles[..., ::-1]
        nibbles = nibbles.reshape(packed.shape[0], -1)
        values = E2M1[nibbles & 7] * np.where(nibbles & 8, -1, 1)
        bias = 126 if "e8m0_bias" in self.traps else 127
        factor = 2.0 ** (scale.astype(np.int64) - bias)
        self.unpacked[name] = values * np.repeat(factor, 32, axis=1)
        return self.unpacked[name]

    # KDA, hybrid-model.md 1.4 and 2.2

    def conv(self, x, name):
        weight = self.w(name + ".weight").reshape(x.shape[1], -1)
        if "taps" in self.traps:
            weight = weight[:, ::-1]
        taps = weight.shape[1]
        padded = np.concatenate([np.zeros((taps - 1, x.shape[1])), x])
        y = sum(padded[j:j + len(x)] * weight[:, j] for j in range(taps))
        return y if "no_conv_silu" in self.traps else silu(y)

    def log_decay(self, x, at, heads, dim):
        raw = self.linear_map(self.linear_map(x, at + "f_a_proj"),
                              at + "f_b_proj")
        a = np.exp(self.w(at + "A_log").reshape(-1)[:heads])[:, None]
        if "a_log_tail" in self.traps:
            a = np.exp(self.w(at + "A_log").reshape(-1)[-heads:])[:, None]
        bias = self.w(at + "dt_bias").reshape(-1)
        if "dt_bias_by_channel" in self.traps:
            bias = bias.reshape(dim, heads).T.reshape(-1)
        raw = (raw + bias).reshape(-1, heads, dim)
        bound = self.linear.get("gate_lower_bound")
        if bound is None:
            g = -a * softplus(raw)
        elif "clamped_gate" in self.traps:
            g = np.maximum(-a * softplus(raw), bound)
        else:
            g = bound * sigmoid(raw if "bound_without_a" in self.traps
                                else a * raw)
        return to_bf16(g) if "bf16_decay" in self.traps else g

    def unit(self, x):
        total = (x * x).sum(-1, keepdims=True)
        if "no_l2norm" in self.traps:
            return x
        eps = self.eps if "l2_eps" in self.traps else 1e-6
        if "l2_mean" in self.traps:
            eps = eps * x.shape[-1]
        return x / np.sqrt(total + eps)

    def recurrence(self, q, k, v, g, beta):
        tokens, heads, dim = q.shape
        state = np.zeros((heads, dim, dim))  # [K, V]
        out = np.zeros_like(v)
        for t in range(tokens):
            before = state.copy()
            state = state * np.exp(g[t])[:, :, None]
            source = before if "undecayed_prediction" in self.traps else state
            predicted = np.einsum("hkv,hk->hv", source, k[t])
            change = beta[t][:, None] * (v[t] - predicted)
            read = state if "read_before_update" in self.traps else None
            state = state + k[t][:, :, None] * change[:, None, :]
            out[t] = np.einsum("hkv,hk->hv", state if read is None else read,
                               q[t])
            if "bf16_state" in self.traps:
                state = to_bf16(state)
        return out, state

    def kda(self, x, at):
        heads, dim = self.linear["num_heads"], self.linear["head_dim"]
        split = lambda y: y.reshape(-1, heads, dim)
        q, k, v = (split(self.conv(self.linear_map(x, f"{at}{n}_proj"),
                                   f"{at}{n}_conv1d")) for n in "qkv")
        scale = 1 if "unscaled_query" in self.traps else dim ** -0.5
        g = self.log_decay(x, at, heads, dim)
        beta = sigmoid(self.linear_map(x, at + "b_proj"))
        if "double_beta" in self.traps:
            beta = 2 * beta
        o, state = self.recurrence(self.unit(q) * scale, self.unit(k), v, g,
                                   beta)
        raw = self.linear_map(x[-4:], at + "q_proj")
        self.kept[at] = {"state": state[0].T.tolist(),
                         "conv": raw.T[:CACHED_CHANNELS].tolist()}
        if self.linear.get("use_full_rank_gate"):
            gate = self.linear_map(x, at + "g_proj")
        else:
            gate = self.linear_map(self.linear_map(x, at + "g_a_proj"),
                                   at + "g_b_proj")
        gate = split(silu(gate) if "swish_gate" in self.traps
                     else sigmoid(gate))
        weight = self.w(at + "o_norm.weight")
        if "gate_before_norm" in self.traps:
            o = rms(o * gate, weight, self.eps)
        elif "norm_of_all_heads" in self.traps:
            whole = rms(o.reshape(len(x), -1), 1, self.eps)
            o = split(whole) * weight * gate
        else:
            eps = 1e-6 if "o_norm_eps" in self.traps else self.output_eps
            o = rms(o, weight, eps) * gate
        return self.linear_map(o.reshape(len(x), -1), at + "o_proj")

    # MLA, 1.5

    def mla(self, x, at):
        c = self.c
        heads, rank = c["num_attention_heads"], c["kv_lora_rank"]
        nope, rope, value = (c["qk_nope_head_dim"], c["qk_rope_head_dim"],
                             c["v_head_dim"])
        if c["q_lora_rank"]:
            low = rms(self.linear_map(x, at + "q_a_proj"),
                      self.w(at + "q_a_layernorm.weight"), self.latent_eps)
            q = self.linear_map(low, at + "q_b_proj")
        else:
            q = self.linear_map(x, at + "q_proj")
        q = q.reshape(-1, heads, nope + rope)
        both = self.linear_map(x, at + "kv_a_proj_with_mqa")
        latent = rms(both[:, :rank], self.w(at + "kv_a_layernorm.weight"),
                     self.latent_eps)
        if "whole_latent_normed" in self.traps:
            latent = latent * rms(both, 1, self.latent_eps)[:, :rank] / rms(
                both[:, :rank], 1, self.latent_eps)
        kv = self.linear_map(latent, at + "kv_b_proj")
        if "keys_of_all_heads_first" in self.traps:
            keys, values = np.split(kv, [heads * nope], axis=1)
            kv = np.concatenate([keys.reshape(-1, heads, nope),
                                 values.reshape(-1, heads, value)], -1)
        kv = kv.reshape(-1, heads, nope + value)
        k_nope, v = kv[..., :nope], kv[..., nope:]
        if "value_first" in self.traps:
            k_nope, v = kv[..., value:], kv[..., :value]
        shared = both[:, None, rank:]
        if "key_normed" in self.traps:
            shared = rms(shared, 1, self.latent_eps)
        shared = np.repeat(shared, heads, 1)
        if "rotation" in self.traps:
            angle = np.arange(len(x))[:, None, None] / 10000.0 ** (
                np.arange(rope // 2) / (rope // 2))
            turn = lambda y: np.concatenate(
                [y[..., :rope // 2] * np.cos(angle)
                 - y[..., rope // 2:] * np.sin(angle),
                 y[..., :rope // 2] * np.sin(angle)
                 + y[..., rope // 2:] * np.cos(angle)], -1)
            shared, q = turn(shared), np.concatenate(
                [q[..., :nope], turn(q[..., nope:])], -1)
        k = np.concatenate([k_nope, shared], -1)
        scale = (nope if "nope_scale" in self.traps else nope + rope) ** -0.5
        scores = np.einsum("thd,shd->hts", q, k) * scale
        scores += np.triu(np.full((len(x), len(x)), -np.inf), 1)
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        weights /= weights.sum(-1, keepdims=True)
        o = np.einsum("hts,shv->thv", weights, v).reshape(len(x), -1)
        if c.get("mla_use_output_gate") and "no_output_gate" not in self.traps:
            gate = self.linear_map(x, at + "g_proj")
            o = o * (silu(gate) if "swish_output_gate" in self.traps
                     else sigmoid(gate))
        return self.linear_map(o, at + "o_proj")

    # Feed-forward, 1.6 and 2.2

    def activate(self, gate, up):
        if self.c["hidden_act"] == "situ" and "silu" not in self.traps:
            beta, bound = (self.c["activation_situ_beta"],
                           self.c["activation_situ_linear_beta"])
            if "situ_betas" in self.traps:
                beta, bound = bound, beta
            if "situ_linear_up" in self.traps:
                return beta * np.tanh(gate / beta) * sigmoid(gate) * up
            return (beta * np.tanh(gate / beta) * sigmoid(gate) * bound
                    * np.tanh(up / bound))
        return silu(gate) * up

    def mlp(self, x, at):
        return self.linear_map(
            self.activate(self.linear_map(x, at + "gate_proj"),
                          self.linear_map(x, at + "up_proj")), at + "down_proj")

    def expert(self, x, at):
        if self.prefix + at + "w1.weight" in self.tensors:
            w1, w2, w3 = (self.w(f"{at}{n}.weight") for n in ("w1", "w2", "w3"))
        else:
            w1, w2, w3 = (self.packed(at + n) for n in ("w1", "w2", "w3"))
        if "w2_w3_swapped_roles" in self.traps:
            w1, w3 = w3, w1
        return self.activate(x @ w1.T, x @ w3.T) @ w2.T

    def route(self, x, at):
        c = self.c
        score = sigmoid(x @ self.w(at + "gate.weight").T)
        if "bf16_scores" in self.traps:
            score = to_bf16(score)
        choice = score + self.w(at + "gate.e_score_correction_bias")
        if "no_bias" in self.traps:
            choice = score.copy()
        groups, kept = c["num_expert_group"], c["topk_group"]
        if groups > 1 and "no_groups" not in self.traps:
            grouped = choice.reshape(groups, -1)
            best = np.sort(grouped, -1)[:, -2:].sum(-1)
            dropped = np.argsort(-best)[kept:]
            grouped[dropped] = 0 if "groups_masked_by_0" in self.traps \
                else -np.inf
            choice = grouped.reshape(-1)
        chosen = np.argsort(-choice, kind="stable")[:c["num_experts_per_token"]]
        weight = (choice if "biased_weights" in self.traps else score)[chosen]
        if c["moe_renormalize"] and "no_renormalise" not in self.traps:
            weight = weight / (weight.sum() + 1e-20)
        if "unscaled_experts" not in self.traps:
            weight = weight * c["routed_scaling_factor"]
        return chosen, weight

    def moe(self, x, at):
        latent = "routed_expert_hidden_size" in self.c
        z = self.linear_map(x, at + "routed_expert_down_proj") if latent else x
        norm = lambda y: rms(y, self.w(at + "routed_expert_norm.weight"),
                             self.eps)
        y = np.zeros_like(z)
        for t in range(len(x)):
            for e, weight in zip(*self.route(x[t], at)):
                part = self.expert(z[t], f"{at}experts.{e}.")
                if latent and "norm_before_sum" in self.traps:
                    part = norm(part)
                y[t] += weight * part
        if latent:
            if "norm_before_sum" not in self.traps:
                y = norm(y)
            if "scale_behind_norm" in self.traps:
                y = y * self.c["routed_scaling_factor"]
            y = self.linear_map(y, at + "routed_expert_up_proj")
        shared = self.mlp(x, at + "shared_experts.")
        if "scaled_shared" in self.traps:
            shared = shared * self.c["routed_scaling_factor"]
        return y + shared

    # The stack, 1.3 and 2.2

    def mixer(self, x, i):
        base = 0 if "lists_from_0" in self.traps else 1
        at = f"model.layers.{i}."
        is_kda = i + base in self.linear["kda_layers"]
        if base == 0:  # the weights decide what can run at all
            is_kda = self.prefix + at + "self_attn.A_log" in self.tensors
        x = rms(x, self.w(at + "input_layernorm.weight"), self.eps)
        return (self.kda if is_kda else self.mla)(x, at + "self_attn.")

    def feed_forward(self, x, i):
        at = f"model.layers.{i}."
        x = rms(x, self.w(at + "post_attention_layernorm.weight"), self.eps)
        if i < self.c["first_k_dense_replace"]:
            return self.mlp(x, at + "mlp.")
        return self.moe(x, at + "block_sparse_moe.")

    def mix(self, prefix, bank, name):
        values = np.stack(bank + [prefix])  # [candidates, tokens, hidden]
        normed = rms(values, self.w(name + "_norm.weight"), self.eps)
        score = normed @ self.w(name + "_proj.weight").reshape(-1)
        if "mix_scores_raw" in self.traps:
            score = (values * self.w(name + "_norm.weight")) @ self.w(
                name + "_proj.weight").reshape(-1)
        if "mix_scaled" in self.traps:
            score = score * values.shape[-1] ** -0.5
        score = np.exp(score - score.max(0))
        weight = (score / score.sum(0))[..., None]
        return (weight * (normed if "mix_normed" in self.traps
                          else values)).sum(0)

    def residual_stack(self, h):
        prefix, bank = h, []
        block = self.c["attn_res_block_size"]
        at = block - 1 if "bank_late" in self.traps else 0
        for i in range(self.c["num_hidden_layers"]):
            layer = f"model.layers.{i}."
            h = self.mix(prefix, bank, layer + "self_attention_res") \
                if bank else prefix
            if i % block == at:
                bank.append(prefix)
                if "stream_goes_on" not in self.traps:
                    prefix = np.zeros_like(prefix)
            prefix = prefix + self.mixer(h, i)
            h = self.mix(prefix, bank, layer + "mlp_res")
            prefix = prefix + self.feed_forward(h, i)
        return self.mix(prefix, bank, "model.output_attn_res")

    def logits(self, tokens):
        h = self.w("model.embed_tokens.weight")[tokens]
        if self.c.get("attn_res_block_size") and \
                "plain_residuals" not in self.traps:
            h = self.residual_stack(h)
        else:
            for i in range(self.c["num_hidden_layers"]):
                h = h + self.mixer(h, i)
                h = h + self.feed_forward(h, i)
        if "no_final_norm" not in self.traps:
            h = rms(h, self.w("model.norm.weight"), self.eps)
        return h @ self.w("lm_head.weight").T


def prompts(model):
    random = np.random.default_rng(11)
    return [random.integers(0, model.c["vocab_size"] - 1, n).tolist()
            for n in PROMPT_LENGTHS]


def generate(model, prompt):
    """Greedy tokens, and the logits each was chosen from."""
    tokens, chosen, rows, kept = list(prompt), [], [], None
    for _ in range(NEW_TOKENS):
        row = model.logits(tokens)[-1]
        kept = kept or model.kept[f"model.layers.{CACHED_LAYER}.self_attn."]
        best = np.sort(row)[-2:]
        if best[1] - best[0] < LEAST_MARGIN:
            sys.exit("model_reference.py: two logits are too close; change the "
                     "seed of tiny_checkpoint.py")
        chosen.append(int(row.argmax()))
        rows.append([float(f"{x:.9g}") for x in row])
        tokens.append(chosen[-1])
    result = {"prompt": prompt, "greedy": chosen, "logits": rows}
    if len(prompt) == PROMPT_LENGTHS[1]:
        result.update(kept)
        usual, model.eps = model.eps, OTHER_EPS
        result["other_eps"] = model.logits(prompt)[-1].tolist()
        model.eps = usual
    return result


COMMON_TRAPS = ["latent_eps", "taps", "no_conv_silu", "no_l2norm", "l2_eps",
                "l2_mean", "unscaled_query", "dt_bias_by_channel",
                "double_beta", "undecayed_prediction", "read_before_update",
                "swish_gate", "gate_before_norm", "norm_of_all_heads",
                "rotation", "nope_scale", "key_normed", "whole_latent_normed",
                "no_bias", "biased_weights", "no_renormalise",
                "unscaled_experts", "scaled_shared", "w2_w3_swapped_roles",
                "value_first", "keys_of_all_heads_first", "a_log_tail",
                "o_norm_eps", "no_final_norm"]
# What must be f32: one rounding to bf16 changes less than a wrong formula.
ROUNDING_TRAPS = ["bf16_decay", "bf16_state", "bf16_scores"]
TRAPS_48B = ["no_groups", "groups_masked_by_0"]
TRAPS_K3 = ["clamped_gate", "nibbles", "e8m0_bias", "no_output_gate", "silu",
            "norm_before_sum", "mix_normed", "plain_residuals", "bank_late",
            "situ_betas", "situ_linear_up", "swish_output_gate",
            "scale_behind_norm", "mix_scores_raw", "mix_scaled",
            "stream_goes_on", "bound_without_a"]


def check_traps(folder):
    model = Model(folder)
    prompt = prompts(model)[2]
    right = model.logits(prompt)[-1]
    is_k3 = bool(model.prefix)
    traps = COMMON_TRAPS + (TRAPS_K3 if is_k3 else TRAPS_48B) + ROUNDING_TRAPS
    # A_log of the 48B has no tail, and a latent norm absorbs a common factor.
    traps = [t for t in traps if is_k3 or t != "a_log_tail"]
    traps = [t for t in traps
             if not is_k3 or t not in ("no_renormalise", "unscaled_experts")]
    failed = 0
    for trap in traps:
        wrong = Model(folder, [trap]).logits(prompt)[-1]
        change = np.linalg.norm(wrong - right) / np.linalg.norm(right)
        print(f"{trap:24} {change:.2e}")
        least = LEAST_ROUNDING if trap in ROUNDING_TRAPS else LEAST_CHANGE
        failed += change < least
    if failed:
        sys.exit(f"{failed} traps change less than {LEAST_CHANGE}, or "
                 f"{LEAST_ROUNDING} of roundings")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder")
    parser.add_argument("--traps", action="store_true",
                        help="check that wrong choices show")
    arguments = parser.parse_args()
    if arguments.traps:
        check_traps(arguments.folder)
        sys.exit()
    model = Model(arguments.folder)
    expected = [generate(model, prompt) for prompt in prompts(model)]
    with open(os.path.join(arguments.folder, "expected.json"), "w") as file:
        json.dump(expected, file)
