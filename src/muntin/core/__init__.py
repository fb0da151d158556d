"""The pure core: no I/O, no clock, no random, nothing but the standard library."""
