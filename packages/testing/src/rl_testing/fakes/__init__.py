"""Small plugins that are as awkward as real engines, for contract and unit tests.

They register through the real plugin door (``rl_testing.plugin``) and share one tiny causal language model, so that any
training fake can be paired with any generation fake.
"""
