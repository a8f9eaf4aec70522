"""Text decoders: dense, mixtures of experts, and models with a state in place of attention."""

from __future__ import annotations

from .architecture import TEXT, Architecture, masked_tokens, token_labels, tokens

_GROUPED = {**TEXT, "num_key_value_heads": 2}
_GPT2 = {
    "vocab_size": 100,
    "n_embd": 32,
    "n_layer": 2,
    "n_head": 4,
    "n_positions": 64,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
_EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16}
_LOCAL = {"num_local_experts": 4, "num_experts_per_tok": 2}
_TWELVE = {"num_hidden_layers": 12}
_LATENT = {
    "n_routed_experts": 4, "num_experts_per_tok": 2, "n_shared_experts": 1, "moe_intermediate_size": 16, "n_group": 2,
    "topk_group": 1, "first_k_dense_replace": 1, "kv_lora_rank": 8, "q_lora_rank": 8, "qk_rope_head_dim": 4,
    "qk_nope_head_dim": 8, "v_head_dim": 8,
}  # fmt: skip


def _dense(name: str, model_class: str, layers: int, **config: object) -> Architecture:
    return Architecture(
        name, "decoder", model_class, {**_GROUPED, **config}, tokens, token_labels, {"num_hidden_layers": layers}
    )


def _mixture(name: str, model_class: str, layers: int, **config: object) -> Architecture:
    return Architecture(
        name, "experts", model_class, {**_GROUPED, **config}, tokens, token_labels, {"num_hidden_layers": layers}
    )


def _state(name: str, model_class: str, layers: int, **config: object) -> Architecture:
    return Architecture(
        name, "state space", model_class, {**_GROUPED, **config}, tokens, token_labels, {"num_hidden_layers": layers}
    )


DECODERS = (
    Architecture("gpt2", "decoder", "GPT2LMHeadModel", _GPT2, tokens, token_labels, {"n_layer": 12}),
    Architecture("openai-gpt", "decoder", "OpenAIGPTLMHeadModel", _GPT2, tokens, token_labels, {"n_layer": 12}),
    Architecture(
        "gpt_bigcode", "decoder", "GPTBigCodeForCausalLM", _GPT2, masked_tokens, token_labels, {"n_layer": 24}
    ),
    Architecture(
        "gpt_neo",
        "decoder",
        "GPTNeoForCausalLM",
        {
            "vocab_size": 100,
            "hidden_size": 32,
            "num_layers": 2,
            "num_heads": 4,
            "max_position_embeddings": 64,
            "window_size": 4,
            "attention_types": [[["global", "local"], 1]],
            "bos_token_id": 1,
            "eos_token_id": 2,
        },
        tokens,
        token_labels,
        {"num_layers": 12, "attention_types": [[["global", "local"], 6]]},
    ),
    Architecture("gpt_neox", "decoder", "GPTNeoXForCausalLM", TEXT, tokens, token_labels, {"num_hidden_layers": 24}),
    Architecture(
        "gptj", "decoder", "GPTJForCausalLM", {**_GPT2, "rotary_dim": 4}, tokens, token_labels, {"n_layer": 28}
    ),
    Architecture(
        "codegen", "decoder", "CodeGenForCausalLM", {**_GPT2, "rotary_dim": 4}, tokens, token_labels, {"n_layer": 20}
    ),
    Architecture(
        "ctrl",
        "decoder",
        "CTRLLMHeadModel",
        {"vocab_size": 100, "n_embd": 32, "n_layer": 2, "n_head": 4, "dff": 64, "n_positions": 64},
        tokens,
        token_labels,
        {"n_layer": 48},
    ),
    Architecture(
        "opt",
        "decoder",
        "OPTForCausalLM",
        {**TEXT, "ffn_dim": 64, "word_embed_proj_dim": 32},
        masked_tokens,
        token_labels,
        _TWELVE,
    ),
    Architecture(
        "bloom",
        "decoder",
        "BloomForCausalLM",
        {"vocab_size": 100, "hidden_size": 32, "n_layer": 2, "n_head": 4},
        masked_tokens,
        token_labels,
        {"n_layer": 24},
    ),
    Architecture("falcon", "decoder", "FalconForCausalLM", TEXT, tokens, token_labels, {"num_hidden_layers": 32}),
    Architecture(
        "mpt",
        "decoder",
        "MptForCausalLM",
        {"vocab_size": 100, "d_model": 32, "n_layers": 2, "n_heads": 4, "max_seq_len": 64},
        tokens,
        token_labels,
        {"n_layers": 24},
    ),
    Architecture(
        "biogpt", "decoder", "BioGptForCausalLM", TEXT, masked_tokens, token_labels, {"num_hidden_layers": 24}
    ),
    Architecture(
        "xglm",
        "decoder",
        "XGLMForCausalLM",
        {
            "vocab_size": 100,
            "d_model": 32,
            "num_layers": 2,
            "attention_heads": 4,
            "ffn_dim": 64,
            "max_position_embeddings": 64,
        },
        tokens,
        token_labels,
        {"num_layers": 24},
    ),
    _dense("llama", "LlamaForCausalLM", 16),
    _dense("mistral", "MistralForCausalLM", 32, sliding_window=8),
    _dense("qwen2", "Qwen2ForCausalLM", 24),
    _dense("qwen3", "Qwen3ForCausalLM", 28, head_dim=8),
    _dense("gemma", "GemmaForCausalLM", 18, head_dim=8),
    _dense("gemma2", "Gemma2ForCausalLM", 26, head_dim=8, sliding_window=8),
    _dense("gemma3", "Gemma3ForCausalLM", 26, head_dim=8, sliding_window=8),
    _dense("phi", "PhiForCausalLM", 24),
    _dense("phi3", "Phi3ForCausalLM", 32),
    _dense("cohere", "CohereForCausalLM", 40),
    _dense("cohere2", "Cohere2ForCausalLM", 32, sliding_window=8),
    _dense("olmo", "OlmoForCausalLM", 16),
    _dense("olmo2", "Olmo2ForCausalLM", 16),
    _dense("stablelm", "StableLmForCausalLM", 24),
    _dense("starcoder2", "Starcoder2ForCausalLM", 30),
    _dense("smollm3", "SmolLM3ForCausalLM", 36),
    _dense("granite", "GraniteForCausalLM", 32),
    _dense("glm4", "Glm4ForCausalLM", 40, head_dim=8),
    _dense("nemotron", "NemotronForCausalLM", 32),
    _dense("persimmon", "PersimmonForCausalLM", 36),
    _dense("helium", "HeliumForCausalLM", 24, head_dim=8),
    _dense("exaone4", "Exaone4ForCausalLM", 30, sliding_window=8),
    _dense("diffllama", "DiffLlamaForCausalLM", 16),
    _dense("modernbert_decoder", "ModernBertDecoderForCausalLM", 22),
    _dense(
        "gemma3n",
        "Gemma3nForCausalLM",
        30,
        head_dim=8,
        sliding_window=8,
        num_kv_shared_layers=0,
        layer_types=["sliding_attention", "full_attention"],
        hidden_size_per_layer_input=8,
        vocab_size_per_layer_input=100,
        laurel_rank=4,
        activation_sparsity_pattern=[0.0, 0.0],
    ),
    _mixture("mixtral", "MixtralForCausalLM", 32, **_LOCAL),
    _mixture("qwen2_moe", "Qwen2MoeForCausalLM", 24, **_EXPERTS, shared_expert_intermediate_size=16),
    _mixture("qwen3_moe", "Qwen3MoeForCausalLM", 48, **_EXPERTS, head_dim=8),
    _mixture("olmoe", "OlmoeForCausalLM", 16, **_EXPERTS),
    _mixture("granitemoe", "GraniteMoeForCausalLM", 32, **_LOCAL),
    _mixture("phimoe", "PhimoeForCausalLM", 32, **_LOCAL),
    _mixture("jetmoe", "JetMoeForCausalLM", 24, **_LOCAL, kv_channels=8),
    _mixture("gpt_oss", "GptOssForCausalLM", 24, **_LOCAL, head_dim=8, sliding_window=8),
    _mixture("deepseek_v2", "DeepseekV2ForCausalLM", 27, **_LATENT, num_key_value_heads=4),
    _mixture("deepseek_v3", "DeepseekV3ForCausalLM", 61, **_LATENT, num_key_value_heads=4),
    _mixture("ernie4_5_moe", "Ernie4_5_MoeForCausalLM", 28, moe_num_experts=4, moe_k=2, moe_intermediate_size=16),
    _mixture(
        "glm4_moe",
        "Glm4MoeForCausalLM",
        46,
        n_routed_experts=4,
        num_experts_per_tok=2,
        moe_intermediate_size=16,
        head_dim=8,
    ),
    _mixture("llama4", "Llama4ForCausalLM", 48, **_LOCAL, intermediate_size_mlp=64, head_dim=8),
    Architecture(
        "dbrx",
        "experts",
        "DbrxForCausalLM",
        {
            "vocab_size": 100,
            "d_model": 32,
            "n_heads": 4,
            "n_layers": 2,
            "max_seq_len": 64,
            "attn_config": {"kv_n_heads": 2, "clip_qkv": 8, "rope_theta": 10000.0},
            "ffn_config": {"ffn_hidden_size": 32, "moe_num_experts": 4, "moe_top_k": 2},
        },
        tokens,
        token_labels,
        {"n_layers": 40},
    ),
    Architecture(
        "mamba",
        "state space",
        "MambaForCausalLM",
        {"vocab_size": 100, "hidden_size": 32, "num_hidden_layers": 2, "state_size": 4},
        tokens,
        token_labels,
        {"num_hidden_layers": 24},
    ),
    Architecture(
        "mamba2",
        "state space",
        "Mamba2ForCausalLM",
        {
            "vocab_size": 100,
            "hidden_size": 32,
            "num_hidden_layers": 2,
            "state_size": 8,
            "num_heads": 8,
            "head_dim": 8,
            "n_groups": 2,
            "chunk_size": 4,
        },
        tokens,
        token_labels,
        {"num_hidden_layers": 24},
    ),
    Architecture(
        "falcon_mamba",
        "state space",
        "FalconMambaForCausalLM",
        {"vocab_size": 100, "hidden_size": 32, "num_hidden_layers": 2, "state_size": 4},
        tokens,
        token_labels,
        {"num_hidden_layers": 24},
    ),
    Architecture(
        "rwkv",
        "state space",
        "RwkvForCausalLM",
        {
            "vocab_size": 100,
            "context_length": 64,
            "hidden_size": 32,
            "num_hidden_layers": 2,
            "attention_hidden_size": 32,
            "intermediate_size": 64,
        },
        tokens,
        token_labels,
        _TWELVE,
    ),
    Architecture(
        "jamba",
        "state space",
        "JambaForCausalLM",
        {
            **_GROUPED,
            "num_experts": 2,
            "num_experts_per_tok": 1,
            "attn_layer_period": 2,
            "attn_layer_offset": 1,
            "expert_layer_period": 2,
            "expert_layer_offset": 1,
            "mamba_d_state": 4,
            "mamba_dt_rank": 4,
            "use_mamba_kernels": False,
        },
        tokens,
        token_labels,
        {"num_hidden_layers": 16},
    ),
    _state(
        "recurrent_gemma",
        "RecurrentGemmaForCausalLM",
        26,
        num_hidden_layers=3,
        lru_width=32,
        attention_window_size=8,
        head_dim=8,
    ),
    _state(
        "bamba",
        "BambaForCausalLM",
        32,
        attn_layer_indices=[1],
        mamba_n_heads=8,
        mamba_d_head=8,
        mamba_d_state=8,
        mamba_n_groups=1,
        mamba_chunk_size=4,
    ),
    _state(
        "falcon_h1",
        "FalconH1ForCausalLM",
        24,
        mamba_d_ssm=32,
        mamba_n_heads=4,
        mamba_d_head=8,
        mamba_d_state=8,
        mamba_n_groups=1,
        mamba_chunk_size=4,
        head_dim=8,
    ),
    _state(
        "zamba2",
        "Zamba2ForCausalLM",
        38,
        mamba_d_state=8,
        mamba_ngroups=1,
        n_mamba_heads=8,
        mamba_headdim=8,
        chunk_size=4,
        hybrid_layer_ids=[1],
        layers_block_type=["mamba", "hybrid"],
        num_mem_blocks=1,
        use_shared_attention_adapter=False,
    ),
    _state("lfm2", "Lfm2ForCausalLM", 16, layer_types=["conv", "full_attention"], block_multiple_of=8),
    _state(
        "qwen3_next",
        "Qwen3NextForCausalLM",
        48,
        **_EXPERTS,
        shared_expert_intermediate_size=16,
        head_dim=8,
        layer_types=["linear_attention", "full_attention"],
        linear_num_value_heads=4,
        linear_num_key_heads=2,
        linear_key_head_dim=8,
        linear_value_head_dim=8,
    ),
    Architecture(
        "xlstm",
        "state space",
        "xLSTMForCausalLM",
        {
            "qk_dim_factor": 1.0,
            "vocab_size": 100,
            "hidden_size": 64,
            "num_hidden_layers": 2,
            "num_heads": 4,
            "chunk_size": 4,
            "pad_token_id": 0,
        },
        tokens,
        token_labels,
        {"num_hidden_layers": 32},
        trains=False,
    ),
)
