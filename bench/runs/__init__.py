"""The pieces of `bench/long_runs.py`: the script, the policies, the wire, and the scores."""
