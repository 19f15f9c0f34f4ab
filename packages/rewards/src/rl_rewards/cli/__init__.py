"""Commands of ``rl`` that this package adds."""
