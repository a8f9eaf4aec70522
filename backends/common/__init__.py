"""What every backend shares, in three rooms and eight modules.

* ``pipeline``: from a captured graph and an implementation to a callable with a report; every backend goes through it,
* ``cache``: compiled code and its recipes on disk, for later calls, processes and machines,
* ``adapter``: what backends need whose runtime is somebody else's; a backend takes from it what it likes,
* ``recurrent``: recurrent layers as eager runs them: one call of cuDNN on a GPU, steps elsewhere,
* ``onednn_lstm``: LSTM layers in training on a CPU; ``apart``: running an operator in the middle of a trace,
* ``max_pooling``: the gradient of max pooling on a GPU, from little memory,
* ``moving``: what a program makes on the CPU for a graph on a GPU,
* ``draws``: random operators that become others which draw the same; ``losses``: formulas of losses,
* ``collectives``: communication between processes in a graph: less of it, in place, and products to compute meanwhile.

``pipeline`` asks ``cache``, an implementation asks ``adapter``; nothing here imports a backend.
"""
