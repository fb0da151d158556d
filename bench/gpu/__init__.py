"""Time to the first token on a real key-value cache; needs torch and a GPU."""
