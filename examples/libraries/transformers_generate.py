"""``generate`` of transformers with a compiled model: each step of the loop runs compiled code.

Run it with: python examples/libraries/transformers_generate.py
"""

import torch
from transformers import LlamaConfig, LlamaForCausalLM

import torchmux

torch.manual_seed(0)
config = LlamaConfig(
    vocab_size=50, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
    num_key_value_heads=2, max_position_embeddings=64, pad_token_id=0, bos_token_id=1, eos_token_id=2,
)  # fmt: skip
model = LlamaForCausalLM(config).eval()
prompt = torch.tensor([[5, 6, 7, 8], [9, 10, 11, 12]])  # two sequences of four tokens

# With a static cache the sizes stay the same, so each step after the first one reuses its code.
how = {"max_new_tokens": 4, "min_new_tokens": 4, "do_sample": False, "cache_implementation": "static"}
how["disable_compile"] = True  # transformers would call torch.compile by itself on a GPU

compiled = torchmux.compile(model)
assert torch.equal(compiled.generate(prompt, **how), model.generate(prompt, **how))

report = torchmux.report(compiled)
assert report.graph_count and not report.breaks
print(report)
