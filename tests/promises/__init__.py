"""What a window never does: one file a promise."""
