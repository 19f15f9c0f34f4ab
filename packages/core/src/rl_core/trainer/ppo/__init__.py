"""PPO and its kin: one loop, and one file for each of its lines."""
