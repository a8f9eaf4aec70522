"""A model with LoRA adapters of peft, compiled for training: the adapters alone get gradients.

Run it with: python examples/libraries/peft_lora.py
It needs peft: python -m pip install peft
"""

import torch
from peft import LoraConfig, get_peft_model
from transformers import LlamaConfig, LlamaForCausalLM

import torchmux

torch.manual_seed(0)
config = LlamaConfig(
    vocab_size=50, hidden_size=32, intermediate_size=64, num_hidden_layers=1, num_attention_heads=4,
    num_key_value_heads=2, max_position_embeddings=64, pad_token_id=0, bos_token_id=1, eos_token_id=2,
)  # fmt: skip
model = get_peft_model(LlamaForCausalLM(config), LoraConfig(r=2, target_modules=["q_proj", "v_proj"]))
compiled = torchmux.compile(model)

tokens = torch.randint(3, 50, (2, 9))
loss = compiled(tokens, labels=tokens).loss
loss.backward()

torch.testing.assert_close(loss, model(tokens, labels=tokens).loss)
trained = [name for name, parameter in model.named_parameters() if parameter.grad is not None]
assert trained and all("lora" in name for name in trained)
report = torchmux.report(compiled)
assert report.graph_count and not report.breaks
print(report)
