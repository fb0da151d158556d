"""Benchmarks, run by hand: their numbers hold for one machine, their ratios travel."""
