"""PRIME: process rewards that a language model learns from outcomes. Source: Cui et al. 2025, arXiv:2502.01456."""
