"""Reward managers: how reward functions are run, and how many at a time. All of them on core's pool of processes."""
