#!/usr/bin/env python3
"""tiny_checkpoint.py 48b|k3|wide FOLDER: writes a small random checkpoint.

Both formats are those of hybrid-model.md 1.2 and 2.3: tensor names, shapes,
dtypes, sharding, and what is odd about them (1-based layer lists, a layer in
neither, A_log of shape [1,1,H,1] or padded with zeros, f32 next to bf16, MXFP4
experts). Values are random, but chosen so that every such choice changes the
logits. Needs NumPy; nothing at run time needs this file.
"""
import argparse
import json
import os
import struct

import numpy as np

CONFIG_48B = {
    "architectures": ["KimiLinearForCausalLM"], "model_type": "kimi_linear",
    "vocab_size": 160, "hidden_size": 72, "num_hidden_layers": 6,
    "num_attention_heads": 3, "num_key_value_heads": 3, "head_dim": 24,
    "intermediate_size": 80, "hidden_act": "silu", "rms_norm_eps": 1e-5,
    "q_lora_rank": None, "kv_lora_rank": 32, "qk_nope_head_dim": 16,
    "qk_rope_head_dim": 8, "v_head_dim": 24, "mla_use_nope": True,
    "num_experts": 8, "num_experts_per_token": 3, "num_shared_experts": 1,
    "moe_intermediate_size": 40, "first_k_dense_replace": 1,
    "moe_layer_freq": 1, "moe_renormalize": True,
    "moe_router_activation_func": "sigmoid", "routed_scaling_factor": 2.446,
    "use_grouped_topk": True, "num_expert_group": 4, "topk_group": 2,
    "num_nextn_predict_layers": 0, "tie_word_embeddings": False,
    "dtype": "bfloat16", "eos_token_id": 159, "model_max_length": 4096,
    "linear_attn_config": {
        "num_heads": 3, "head_dim": 32, "short_conv_kernel_size": 4,
        "full_attn_layers": [4], "kda_layers": [1, 2, 3, 5]},
}

CONFIG_K3 = {
    "model_type": "kimi_k3",
    "architectures": ["KimiK3ForConditionalGeneration"],
    "text_config": {
        "model_type": "kimi_linear", "vocab_size": 160, "hidden_size": 96,
        "num_hidden_layers": 8, "num_attention_heads": 2,
        "num_key_value_heads": 2, "intermediate_size": 112,
        "hidden_act": "situ", "activation_situ_beta": 4.0,
        "activation_situ_linear_beta": 25.0, "rms_norm_eps": 1e-5,
        "q_lora_rank": 24, "kv_lora_rank": 32, "qk_nope_head_dim": 16,
        "qk_rope_head_dim": 8, "v_head_dim": 24, "mla_use_nope": True,
        "mla_use_output_gate": True, "num_experts": 12,
        "num_experts_per_token": 4, "num_shared_experts": 2,
        "moe_intermediate_size": 64, "routed_expert_hidden_size": 32,
        "latent_moe_use_norm": True, "first_k_dense_replace": 1,
        "moe_layer_freq": 1, "moe_renormalize": True,
        "moe_router_activation_func": "sigmoid", "routed_scaling_factor": 1.5,
        "num_expert_group": 1, "topk_group": 1, "attn_res_block_size": 3,
        "num_nextn_predict_layers": 0, "tie_word_embeddings": False,
        "eos_token_id": 159, "max_position_embeddings": 4096,
        "linear_attn_config": {
            "num_heads": 2, "head_dim": 64, "short_conv_kernel_size": 4,
            "use_full_rank_gate": True, "gate_lower_bound": -5.0,
            "full_attn_layers": [4, 7, 8], "kda_layers": [1, 2, 3, 5, 6]}},
    "quantization_config": {"quant_method": "compressed-tensors",
                            "format": "mxfp4-pack-quantized"},
}


# The 48B's widths of heads, for kernels that are made for them.
CONFIG_WIDE = {
    **CONFIG_48B, "num_hidden_layers": 4, "kv_lora_rank": 512,
    "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128,
    "moe_intermediate_size": 72,
    "linear_attn_config": {
        "num_heads": 2, "head_dim": 128, "short_conv_kernel_size": 4,
        "full_attn_layers": [2, 4], "kda_layers": [1, 3]},
}

CONFIGS = {"48b": CONFIG_48B, "k3": CONFIG_K3, "wide": CONFIG_WIDE}


def bf16_bits(values):
    """The bf16 nearest to each f32, ties to even."""
    bits = np.asarray(values, np.float32).view(np.uint32).astype(np.uint64)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


class Writer:
    """Random tensors by name, in the order they are drawn."""

    def __init__(self, seed):
        self.random = np.random.default_rng(seed)
        self.tensors = {}  # name -> (dtype, shape, bytes)

    def put(self, name, values, dtype):
        values = np.asarray(values, np.float32)
        data = bf16_bits(values) if dtype == "BF16" else values
        self.tensors[name] = (dtype, list(values.shape), data.tobytes())

    def matrix(self, name, out, width, scale=1.0, dtype="BF16"):
        """Rows whose products with unit-variance inputs have this scale."""
        values = self.random.standard_normal((out, width)) * scale / width**0.5
        self.put(name + ".weight", values, dtype)

    def norm(self, name, width, dtype="BF16"):
        self.put(name + ".weight", 1 + 0.3 * self.random.standard_normal(width),
                 dtype)

    def bytes(self, name, values):
        self.tensors[name] = ("U8", list(values.shape), values.tobytes())

    def mxfp4(self, name, out, width):
        """Random E2M1 pairs and E8M0 scales: value = nibble * 2^(scale-127)."""
        self.bytes(name + ".weight_packed",
                   self.random.integers(0, 256, (out, width // 2), np.uint8))
        self.bytes(name + ".weight_scale",
                   self.random.integers(121, 125, (out, width // 32), np.uint8))

    def save(self, path, names):
        header, offset = {"__metadata__": {"format": "pt"}}, 0
        # Wide elements first, so that all are aligned.
        order = sorted(names, key=lambda n: -{"F32": 4, "BF16": 2, "U8": 1}
                       [self.tensors[n][0]])
        for name in order:
            dtype, shape, data = self.tensors[name]
            header[name] = {"dtype": dtype, "shape": shape,
                            "data_offsets": [offset, offset + len(data)]}
            offset += len(data)
        text = json.dumps(header).encode()
        text += b" " * (-len(text) % 8)
        with open(path, "wb") as file:
            file.write(struct.pack("<Q", len(text)) + text)
            for name in order:
                file.write(self.tensors[name][2])


def kda(w, at, c, is_k3):
    linear = c["linear_attn_config"]
    heads, dim, hidden = linear["num_heads"], linear["head_dim"], c["hidden_size"]
    width = heads * dim
    small = "F32" if is_k3 else "BF16"
    for name in "qkv":
        # Small queries, so that the epsilon of their norm can be seen.
        w.matrix(f"{at}{name}_proj", width, hidden,
                 0.001 if name == "q" else 1.0)
        w.put(f"{at}{name}_conv1d.weight",
              w.random.standard_normal((width, 1, 4)) * 0.6, small)
    a_log = w.random.uniform(-1, 1, heads)
    w.put(at + "A_log", np.concatenate([a_log, np.zeros(6)]) if is_k3
          else a_log.reshape(1, 1, heads, 1), "F32")
    w.put(at + "dt_bias", w.random.uniform(-3, 1, width), "F32")
    w.matrix(at + "f_a_proj", dim, hidden)
    w.matrix(at + "f_b_proj", width, dim)
    w.matrix(at + "b_proj", heads, hidden)
    if is_k3:
        w.matrix(at + "g_proj", width, hidden, 2.0)
    else:
        w.matrix(at + "g_a_proj", dim, hidden)
        w.matrix(at + "g_b_proj", width, dim, 2.0)
    w.norm(at + "o_norm", dim, small)
    w.matrix(at + "o_proj", hidden, width)


def mla(w, at, c):
    hidden, heads, rank = (c["hidden_size"], c["num_attention_heads"],
                           c["kv_lora_rank"])
    nope, rope, value = (c["qk_nope_head_dim"], c["qk_rope_head_dim"],
                         c["v_head_dim"])
    # Small latents, so that the epsilon of their norms can be seen.
    if c["q_lora_rank"]:
        w.matrix(at + "q_a_proj", c["q_lora_rank"], hidden, 0.01)
        w.norm(at + "q_a_layernorm", c["q_lora_rank"])
        w.matrix(at + "q_b_proj", heads * (nope + rope), c["q_lora_rank"], 2.0)
    else:
        w.matrix(at + "q_proj", heads * (nope + rope), hidden, 2.0)
    scale = np.full((rank + rope, 1), 0.01)
    scale[rank:] = 2.0
    values = w.random.standard_normal((rank + rope, hidden)) / hidden**0.5
    w.put(at + "kv_a_proj_with_mqa.weight", values * scale, "BF16")
    w.norm(at + "kv_a_layernorm", rank)
    w.matrix(at + "kv_b_proj", heads * (nope + value), rank)
    if c.get("mla_use_output_gate"):
        w.matrix(at + "g_proj", heads * value, hidden, 2.0)
    w.matrix(at + "o_proj", hidden, heads * value)


def mlp(w, at, hidden, width):
    w.matrix(at + "gate_proj", width, hidden, 2.0)
    w.matrix(at + "up_proj", width, hidden, 2.0)
    w.matrix(at + "down_proj", hidden, width)


def moe(w, at, c):
    hidden, width = c["hidden_size"], c["moe_intermediate_size"]
    latent = c.get("routed_expert_hidden_size")
    w.matrix(at + "gate", c["num_experts"], hidden)
    w.put(at + "gate.e_score_correction_bias",
          0.3 * w.random.standard_normal(c["num_experts"]), "F32")
    for e in range(c["num_experts"]):
        for name in ("w1", "w3", "w2"):
            shape = (width, latent or hidden)
            shape = shape[::-1] if name == "w2" else shape
            if latent:
                w.mxfp4(f"{at}experts.{e}.{name}", *shape)
            else:
                w.matrix(f"{at}experts.{e}.{name}", *shape, 1.5)
    mlp(w, at + "shared_experts.", hidden, c["num_shared_experts"] * width)
    if latent:
        w.matrix(at + "routed_expert_down_proj", latent, hidden)
        w.norm(at + "routed_expert_norm", latent)
        w.matrix(at + "routed_expert_up_proj", hidden, latent)


def make(kind, folder):
    is_k3 = kind == "k3"
    config = CONFIGS[kind]
    c = config["text_config"] if is_k3 else config
    w = Writer(seed=4 if is_k3 else 48)
    prefix = "language_model." if is_k3 else ""
    hidden = c["hidden_size"]
    w.matrix(prefix + "model.embed_tokens", c["vocab_size"], hidden, hidden**0.5)
    for i in range(c["num_hidden_layers"]):
        at = f"{prefix}model.layers.{i}."
        w.norm(at + "input_layernorm", hidden)
        w.norm(at + "post_attention_layernorm", hidden)
        if i + 1 in c["linear_attn_config"]["kda_layers"]:
            kda(w, at + "self_attn.", c, is_k3)
        else:
            mla(w, at + "self_attn.", c)
        if i < c["first_k_dense_replace"]:
            mlp(w, at + "mlp.", hidden, c["intermediate_size"])
        else:
            moe(w, at + "block_sparse_moe.", c)
        if is_k3:
            for name in ("self_attention_res", "mlp_res"):
                w.norm(f"{at}{name}_norm", hidden)
                w.matrix(f"{at}{name}_proj", 1, hidden, 1.5)
    w.norm(prefix + "model.norm", hidden)
    if is_k3:
        w.norm(prefix + "model.output_attn_res_norm", hidden)
        w.matrix(prefix + "model.output_attn_res_proj", 1, hidden, 1.5)
        w.matrix("vision_tower.patch_embed.proj", 4, 4)  # ignored for text
    w.matrix(prefix + "lm_head", c["vocab_size"], hidden, 3.0)
    write_folder(w, config, folder, is_k3)


def write_folder(w, config, folder, is_sharded):
    """One file, or one shard for every layer with an index, as K3 has."""
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "config.json"), "w") as file:
        json.dump(config, file, indent=1)
    if not is_sharded:
        w.save(os.path.join(folder, "model.safetensors"), list(w.tensors))
        return
    shards = {}
    for name in w.tensors:
        layer = name.split(".layers.")[1].split(".")[0] if ".layers." in name \
            else "rest"
        shards.setdefault(f"model-{layer}.safetensors", []).append(name)
    for shard, names in shards.items():
        w.save(os.path.join(folder, shard), names)
    index = {"metadata": {}, "weight_map": {
        name: shard for shard, names in shards.items() for name in names}}
    with open(os.path.join(folder, "model.safetensors.index.json"), "w") as file:
        json.dump(index, file)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("kind", choices=list(CONFIGS))
    parser.add_argument("folder")
    arguments = parser.parse_args()
    make(arguments.kind, arguments.folder)
