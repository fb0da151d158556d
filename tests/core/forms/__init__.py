"""How messages of other makers are read."""
