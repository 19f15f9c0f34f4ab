"""Correction for responses that another policy drew than the one that is trained.

The generation engine computes in its own precision and with its own kernels, and a schedule may hold older weights in
it: the policy that drew a token (``rollout``) is never quite the one whose update it feeds. What both say about the same
tokens gives importance weights (``weights``), rules that leave tokens or responses out (``rejection``), and numbers that
show the distance (``diagnostics``). ``bypass`` does it inside the loss, where the generator's policy is the old one.
"""
