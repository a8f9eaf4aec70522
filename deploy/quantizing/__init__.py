"""Models in int8.

* ``models``: ``torchmux.quantize``, and how far its results and seconds are from float32,
* ``tools``: those that it calls: onnxruntime's, NNCF, and torchao,
* ``products``: products of int8 in the graphs of torchao's PT2E.

Importing this package imports none of these modules.
"""
