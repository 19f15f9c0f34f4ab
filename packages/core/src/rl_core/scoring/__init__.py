"""Reward functions in processes of their own: with a deadline that kills, a memory limit, and nothing left behind."""
