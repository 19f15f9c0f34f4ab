"""``rl eval``: what a checkpoint is, how its run is configured again, and what its answers are worth."""
