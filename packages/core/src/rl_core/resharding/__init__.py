"""How weights travel when no faster mover is installed for a pairing: the generic path, and the digest that checks it."""
