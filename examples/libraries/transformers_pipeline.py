"""A pipeline of transformers around a compiled model, with a tiny model and a tiny tokenizer of random weights.

Run it with: python examples/libraries/transformers_pipeline.py
"""

import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import BertConfig, BertForSequenceClassification, PreTrainedTokenizerFast, pipeline

import torchmux

torch.manual_seed(0)

# --- a model and a tokenizer; yours come from from_pretrained ---------------------------------------------------------

words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "a", "good", "bad", "film", "very"]
tokenizer = Tokenizer(models.WordLevel({word: number for number, word in enumerate(words)}, unk_token="[UNK]"))
tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
tokenizer = PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]")
sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
model = BertForSequenceClassification(BertConfig(vocab_size=len(words), num_labels=2, **sizes)).eval()

# --- the pipeline takes the compiled model as it takes the original ---------------------------------------------------

texts = ["a good film", "a very bad film", "good"]
wanted = pipeline("text-classification", model=model, tokenizer=tokenizer, device="cpu")(texts)

compiled = torchmux.compile(model, dynamic=True)
found = pipeline("text-classification", model=compiled, tokenizer=tokenizer, device="cpu")(texts)

for ours, theirs in zip(found, wanted, strict=True):
    assert ours["label"] == theirs["label"]
    assert abs(ours["score"] - theirs["score"]) < 1e-5
report = torchmux.report(compiled)
assert report.graph_count and not report.breaks
print(report)
