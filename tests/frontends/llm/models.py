# SPDX-License-Identifier: Apache-2.0
"""A small model for each architecture, and for what varies within one."""

from __future__ import annotations

from typing import Any

from tests.frontends.llm.checkpoints import LLAMA3, LONG, YARN, Llama, Mixture, Style

GEMMA: dict[str, Any] = {
    "offset": 1.0,
    "activation": "gelu_tanh",
    "embedding_scale": 32**0.5,
}
GEMMA2: dict[str, Any] = {
    "query_scale": 12**-0.5,
    "before": ("input_layernorm", "pre_feedforward_layernorm"),
    "after": ("post_attention_layernorm", "post_feedforward_layernorm"),
}

PHI: dict[str, Any] = {
    "hidden_act": "gelu_new",
    "layer_norm_eps": 1e-5,
    "partial_rotary_factor": 0.5,
}
PARALLEL: dict[str, Any] = {
    "before": ("input_layernorm", ""),
    "last_norm": "final_layernorm",
    "centered": True,
    "output": "dense",
    "parallel": True,
    "plain": ("fc1", "fc2"),
    "activation": "gelu_tanh",
}
OLMO: dict[str, Any] = {
    "before": ("", ""),
    "after": ("post_attention_layernorm", "post_feedforward_layernorm"),
    "head_norm": "joint",
}
COHERE: dict[str, Any] = {
    "before": ("input_layernorm", ""),
    "centered": True,
    "parts": ("weight",),
    "parallel": True,
    "neighbors": True,
}
NEOX: dict[str, Any] = {
    "model": "gpt_neox",
    "centered": True,
    "plain": ("fc1", "fc2"),
    "activation": "gelu",
    "rotated": 4,
    "fused": True,
    "by_heads": True,
    "names": (
        ("model.embed_tokens", "gpt_neox.embed_in"),
        ("model.norm", "gpt_neox.final_layer_norm"),
        ("model.layers", "gpt_neox.layers"),
        ("lm_head", "embed_out"),
        ("self_attn.qkv_proj", "attention.query_key_value"),
        ("self_attn.o_proj", "attention.dense"),
        ("mlp.fc1", "mlp.dense_h_to_4h"),
        ("mlp.fc2", "mlp.dense_4h_to_h"),
    ),
}
GPT2: dict[str, Any] = {
    "model": "gpt2",
    "centered": True,
    "plain": ("fc1", "fc2"),
    "activation": "gelu_tanh",
    "positions": 0,
    "still": (0, 1),
    "fused": True,
    "transposed": True,
    "names": (
        ("model.embed_tokens", "wte"),
        ("model.embed_positions", "wpe"),
        ("model.norm", "ln_f"),
        ("model.layers", "h"),
        ("input_layernorm", "ln_1"),
        ("post_attention_layernorm", "ln_2"),
        ("self_attn.qkv_proj", "attn.c_attn"),
        ("self_attn.o_proj", "attn.c_proj"),
        ("mlp.fc1", "mlp.c_fc"),
        ("mlp.fc2", "mlp.c_proj"),
    ),
}
OPT: dict[str, Any] = {
    "centered": True,
    "plain": ("fc1", "fc2"),
    "activation": "relu",
    "positions": 2,
    "still": (0, 1),
    "names": (
        ("post_attention_layernorm", "final_layer_norm"),
        ("input_layernorm", "self_attn_layer_norm"),
        ("model.norm", "model.final_layer_norm"),
        ("self_attn.o_proj", "self_attn.out_proj"),
        ("mlp.fc", "fc"),
        ("model.", "model.decoder."),
    ),
}

MODELS = {
    "tied": Llama(),
    "untied": Llama(tied=False),
    "biases": Llama(biases="qkvogud"),
    "wide heads": Llama(size=16, config={"rope_scaling": LLAMA3}),
    "linear scaling": Llama(config={"rope_scaling": {"rope_type": "linear", "factor": 4.0}}),
    "one head of keys": Llama(keys=1),
    "no shared keys": Llama(keys=4),
    "f16": Llama(kind="F16"),
    "bf16": Llama(kind="BF16", tied=False),
    "yarn": Llama(size=16, config={"rope_scaling": YARN}),
    "dynamic scaling": Llama(config={"rope_scaling": {"type": "dynamic", "factor": 2.0}}),
    "squared activation": Llama(config={"hidden_act": "relu2"}, style=Style(activation="relu2")),
    "activation by sigmoid": Llama(
        config={"hidden_act": "quick_gelu"}, style=Style(activation="quick_gelu")
    ),
    "olmo2": Llama(architecture="Olmo2ForCausalLM", norms=True, tied=False, style=Style(**OLMO)),
    "olmo2 with biases": Llama(
        architecture="Olmo2ForCausalLM", keys=1, norms=True, biases="qkvo", style=Style(**OLMO)
    ),
    "olmo3": Llama(
        architecture="Olmo3ForCausalLM",
        layers=5,
        norms=True,
        tied=False,
        config={"sliding_window": 6, "rope_theta": 500000.0, "rope_scaling": YARN},
        style=Style(**OLMO, windows=(6, 6, 6, None, 6), local_theta=500000.0),
    ),
    "olmo with experts": Llama(
        architecture="OlmoeForCausalLM",
        hidden=24,
        norms=True,
        config={"num_experts": 5, "num_experts_per_tok": 2, "norm_topk_prob": False},
        style=Style(head_norm="joint", mixture=Mixture(5, 2, 24, normalized=False)),
    ),
    "exaone4": Llama(
        architecture="Exaone4ForCausalLM",
        layers=4,
        norms=True,
        config={"sliding_window": 6, "sliding_window_pattern": 3},
        style=Style(
            before=OLMO["before"], after=OLMO["after"], windows=(6, 6, None, 6), still=(2,)
        ),
    ),
    "exaone4 without windows": Llama(
        architecture="Exaone4ForCausalLM",
        norms=True,
        config={
            "sliding_window": None,
            "sliding_window_pattern": None,
            "layer_types": ["full_attention"] * 2,
        },
        style=Style(before=OLMO["before"], after=OLMO["after"]),
    ),
    "seed oss": Llama(
        architecture="SeedOssForCausalLM",
        biases="qkv",
        tied=False,
        config={"attention_bias": True},
        style=Style(model="seed_oss"),
    ),
    "ministral": Llama(
        architecture="MinistralForCausalLM",
        config={"sliding_window": 6, "layer_types": ["sliding_attention", "full_attention"]},
        style=Style(windows=(6, None)),
    ),
    "arcee": Llama(
        architecture="ArceeForCausalLM",
        tied=False,
        config={"hidden_act": "relu2"},
        style=Style(plain=("up_proj", "down_proj"), activation="relu2"),
    ),
    "cohere": Llama(
        architecture="CohereForCausalLM",
        biases="qkvo",
        config={"logit_scale": 0.5, "layer_norm_eps": 1e-5},
        style=Style(**COHERE, logit_scale=0.5),
    ),
    "cohere with norms of heads": Llama(
        architecture="CohereForCausalLM",
        norms=True,
        config={"use_qk_norm": True},
        style=Style(**COHERE, head_norm="stacked", logit_scale=1 / 16),
    ),
    "cohere2": Llama(
        architecture="Cohere2ForCausalLM",
        layers=4,
        config={"sliding_window": 6, "sliding_window_pattern": 3, "logit_scale": 0.25},
        style=Style(**COHERE, windows=(6, 6, None, 6), still=(2,), logit_scale=0.25),
    ),
    "glm": Llama(
        architecture="GlmForCausalLM",
        size=16,
        tied=False,
        biases="qkv",
        config={"attention_bias": True},
        style=Style(neighbors=True, rotated=8, gate_fused=True),
    ),
    "glm4": Llama(
        architecture="Glm4ForCausalLM",
        size=16,
        tied=False,
        config={"partial_rotary_factor": 0.75},
        style=Style(
            after=("post_self_attn_layernorm", "post_mlp_layernorm"),
            neighbors=True,
            rotated=12,
            gate_fused=True,
        ),
    ),
    "helium": Llama(
        architecture="HeliumForCausalLM", keys=4, tied=False, style=Style(neighbors=True)
    ),
    "ernie4_5": Llama(
        architecture="Ernie4_5ForCausalLM",
        biases="qkvogud",
        config={"use_bias": True},
        style=Style(model="ernie4_5", neighbors=True),
    ),
    "gpt neox": Llama(
        architecture="GPTNeoXForCausalLM",
        keys=4,
        size=16,
        width=64,
        tied=False,
        biases="qkvof",
        config={"rotary_emb_base": 10000, "hidden_act": "gelu", "attention_bias": True},
        style=Style(**NEOX, parallel=True, apart=True),
    ),
    "gpt neox one after the other": Llama(
        architecture="GPTNeoXForCausalLM",
        keys=4,
        width=32,
        biases="f",
        config={
            "use_parallel_residual": False,
            "rotary_pct": 0.5,
            "hidden_act": "gelu",
            "attention_bias": False,
        },
        style=Style(**NEOX),
    ),
    "gpt2": Llama(
        architecture="GPT2LMHeadModel",
        keys=4,
        biases="qkvof",
        config={"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 512, "n_inner": 44},
        style=Style(**GPT2),
    ),
    "opt": Llama(
        architecture="OPTForCausalLM",
        keys=4,
        biases="qkvof",
        config={"ffn_dim": 44},
        style=Style(**OPT),
    ),
    "nemotron": Llama(
        architecture="NemotronForCausalLM",
        size=16,
        tied=False,
        config={"hidden_act": "relu2", "norm_eps": 1e-5},
        style=Style(
            centered=True,
            offset=1.0,
            rotated=8,
            plain=("up_proj", "down_proj"),
            activation="relu2",
        ),
    ),
    "olmo": Llama(
        architecture="OlmoForCausalLM",
        tied=False,
        config={"clip_qkv": 0.8},
        style=Style(centered=True, parts=(), input_cap=0.8),
    ),
    "granite": Llama(
        architecture="GraniteForCausalLM",
        biases="gdu",
        config={
            "embedding_multiplier": 12,
            "attention_multiplier": 0.25,
            "residual_multiplier": 0.22,
            "logits_scaling": 8.0,
        },
        style=Style(embedding_scale=12, query_scale=0.25, result_scale=0.22, logit_scale=1 / 8),
    ),
    "starcoder2": Llama(
        architecture="Starcoder2ForCausalLM",
        biases="qkvoc",
        config={"hidden_act": "gelu_pytorch_tanh", "norm_epsilon": 1e-5, "sliding_window": 6},
        style=Style(
            windows=(6, 6), centered=True, plain=("c_fc", "c_proj"), activation="gelu_tanh"
        ),
    ),
    "starcoder2 without biases": Llama(
        architecture="Starcoder2ForCausalLM",
        tied=False,
        config={"hidden_act": "gelu_pytorch_tanh", "norm_epsilon": 1e-5, "use_bias": False},
        style=Style(centered=True, plain=("c_fc", "c_proj"), activation="gelu_tanh"),
    ),
    "stablelm": Llama(
        architecture="StableLmForCausalLM",
        keys=4,
        tied=False,
        biases="qkv",
        config={"use_qkv_bias": True, "layer_norm_eps": 1e-5},
        style=Style(centered=True, rotated=2),
    ),
    "stablelm with norms of heads": Llama(
        architecture="StableLmForCausalLM",
        norms=True,
        config={
            "qk_layernorm": True,
            "use_parallel_residual": True,
            "partial_rotary_factor": 0.5,
            "layer_norm_eps": 1e-5,
        },
        style=Style(
            before=("input_layernorm", ""),
            centered=True,
            head_norm="single",
            norm="layernorm",
            parallel=True,
            rotated=4,
        ),
    ),
    "mistral": Llama(
        architecture="MistralForCausalLM", config={"sliding_window": 6}, style=Style(windows=(6, 6))
    ),
    "mistral with types of layers": Llama(
        architecture="MistralForCausalLM",
        config={"sliding_window": 6, "layer_types": ["full_attention", "sliding_attention"]},
        style=Style(windows=(None, 6)),
    ),
    "qwen2": Llama(architecture="Qwen2ForCausalLM", biases="qkv"),
    "late windows": Llama(
        architecture="Qwen2ForCausalLM",
        biases="qkv",
        config={"use_sliding_window": True, "sliding_window": 5, "max_window_layers": 1},
        style=Style(windows=(None, 5)),
    ),
    "qwen3": Llama(architecture="Qwen3ForCausalLM", norms=True, tied=False),
    "qwen3 with types of layers": Llama(
        architecture="Qwen3ForCausalLM",
        norms=True,
        config={
            "use_sliding_window": True,
            "sliding_window": 7,
            "layer_types": ["sliding_attention", "full_attention"],
        },
        style=Style(windows=(7, None)),
    ),
    "smollm3": Llama(
        architecture="SmolLM3ForCausalLM",
        layers=3,
        config={"no_rope_layers": [1, 0, 1]},
        style=Style(still=(1,)),
    ),
    "smollm3 with windows": Llama(
        architecture="SmolLM3ForCausalLM",
        layers=3,
        config={"no_rope_layer_interval": 3, "use_sliding_window": True, "sliding_window": 4},
        style=Style(still=(2,), windows=(None, None, 4)),
    ),
    "gemma": Llama(
        architecture="GemmaForCausalLM",
        keys=1,
        config={"hidden_act": "gelu_pytorch_tanh"},
        style=Style(**GEMMA),
    ),
    "gemma2": Llama(
        architecture="Gemma2ForCausalLM",
        config={
            "sliding_window": 6,
            "query_pre_attn_scalar": 12,
            "attn_logit_softcapping": 1.5,
            "final_logit_softcapping": 5.0,
        },
        style=Style(**GEMMA, **GEMMA2, windows=(6, None), score_cap=1.5, logit_cap=5.0),
    ),
    "gemma3": Llama(
        architecture="Gemma3ForCausalLM",
        layers=4,
        norms=True,
        config={
            "sliding_window": 6,
            "query_pre_attn_scalar": 12,
            "sliding_window_pattern": 3,
            "rope_theta": 1e6,
            "rope_scaling": {"rope_type": "linear", "factor": 8.0},
            "rope_local_base_freq": 5000.0,
        },
        style=Style(
            **GEMMA, **GEMMA2, model="gemma3_text", windows=(6, 6, None, 6), local_theta=5000.0
        ),
    ),
    "phi": Llama(
        architecture="PhiForCausalLM",
        keys=4,
        tied=False,
        biases="qkvdfl",
        config=PHI,
        style=Style(**PARALLEL, rotated=4),
    ),
    "phi2 with shared keys": Llama(
        architecture="PhiForCausalLM",
        width=64,
        size=16,
        tied=False,
        biases="qkvdfl",
        config=PHI | {"partial_rotary_factor": 0.375},
        style=Style(**PARALLEL, rotated=6),
    ),
    "phi with norms of heads": Llama(
        architecture="PhiForCausalLM",
        tied=False,
        norms=True,
        biases="qkvdfl",
        config=PHI | {"qk_layernorm": True},
        style=Style(**PARALLEL, rotated=4, norm="layernorm"),
    ),
    "phi3": Llama(
        architecture="Phi3ForCausalLM",
        tied=False,
        config={"sliding_window": 6},
        style=Style(windows=(6, 6), fused=True, gate_fused=True),
    ),
    "phi3 of long contexts": Llama(
        architecture="Phi3ForCausalLM",
        width=64,
        size=16,
        config={
            "rope_scaling": LONG,
            "original_max_position_embeddings": 200,
            "partial_rotary_factor": 0.75,
        },
        style=Style(fused=True, gate_fused=True, rotated=12),
    ),
    "mixtral": Llama(
        architecture="MixtralForCausalLM",
        tied=False,
        config={"num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": 9},
        style=Style(
            windows=(9, 9),
            mixture=Mixture(4, 2, 44, at="block_sparse_moe", names=("w1", "w3", "w2")),
        ),
    ),
    "qwen2 with experts": Llama(
        architecture="Qwen2MoeForCausalLM",
        biases="qkv",
        config={
            "num_experts": 5,
            "num_experts_per_tok": 3,
            "moe_intermediate_size": 24,
            "shared_expert_intermediate_size": 20,
            "norm_topk_prob": False,
        },
        style=Style(model="qwen2_moe", mixture=Mixture(5, 3, 24, normalized=False, shared=20)),
    ),
    "qwen2 with experts and windows": Llama(
        architecture="Qwen2MoeForCausalLM",
        layers=4,
        config={
            "num_experts": 4,
            "num_experts_per_tok": 1,
            "moe_intermediate_size": 24,
            "shared_expert_intermediate_size": 20,
            "norm_topk_prob": True,
            "qkv_bias": False,
            "use_sliding_window": True,
            "sliding_window": 5,
            "max_window_layers": 2,
        },
        style=Style(
            model="qwen2_moe", windows=(5, None, None, None), mixture=Mixture(4, 1, 24, shared=20)
        ),
    ),
    "qwen3 with experts and windows": Llama(
        architecture="Qwen3MoeForCausalLM",
        norms=True,
        config={
            "num_local_experts": 4,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": 24,
            "norm_topk_prob": False,
            "use_sliding_window": True,
            "sliding_window": 6,
        },
        style=Style(model="qwen3_moe", windows=(6, 6), mixture=Mixture(4, 2, 24, normalized=False)),
    ),
    "longrope": Llama(
        width=64,
        size=12,
        config={"rope_scaling": LONG | {"original_max_position_embeddings": 200}},
    ),
    "qwen3 with experts": Llama(
        architecture="Qwen3MoeForCausalLM",
        kind="F16",
        norms=True,
        layers=3,
        config={
            "num_experts": 6,
            "num_experts_per_tok": 3,
            "moe_intermediate_size": 24,
            "norm_topk_prob": True,
            "mlp_only_layers": [1],
        },
        style=Style(model="qwen3_moe", mixture=Mixture(6, 3, 24, without=(1,))),
    ),
}

COMPRESSED = {
    "layers of unequal widths": Llama(
        layers=3, style=Style(widths=((4, 2, 44), (2, 2, 20), (3, 1, 33)))
    ),
    "low rank": Llama(width=64, hidden=96, size=16, style=Style(rank=6)),
    "low rank in f16": Llama(
        width=64, hidden=96, size=16, kind="F16", layers=1,
        style=Style(rank=6, factors=("_u_proj", "_v_proj")),
    ),
    "ranks that save nothing": Llama(style=Style(rank=30)),
}  # fmt: skip
"""Models that `transformers` does not read."""
