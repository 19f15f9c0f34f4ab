"""Low-rank adapters (LoRA): only two small matrices beside each linear layer are trained, the base model stays as it is.

::

    y = W x + (alpha / r) B A x        W [out, in] frozen, A [r, in], B [out, r] trained, B starts as 0

Source: Hu et al. 2021, arXiv:2106.09685, eq. 3.
"""
