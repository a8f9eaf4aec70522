"""Changes of a graph before it is lowered.

* ``attention`` finds attention that a program writes out in the captured graph; it becomes ``attention_operator``,
* ``images`` has convolutions compute in channels last where a graph is for training,
* ``masks`` drops masks of attention that hide nothing, where torch's fused attention takes the rest,
* ``precision`` converts the operands of products for ``precision="bf16"``,
* ``norms`` gives results of batch norms in training by a formula, so that they are not saved,
* ``embeddings`` has a formula for the gradient of an embedding in half precision, used while a graph is traced,
* ``fourier`` computes gradients of transforms of real numbers by transforms to real numbers,
* ``freezing`` computes ahead what depends on constants alone, and makes additions and a relu part of the convolution
  before them: ``convolution_operator``.

``decisive`` changes nothing: it tells the lowering which values of half precision have to be rounded as in eager.

Which of these are worth it is a question to the target; the rewrites know none.
"""
