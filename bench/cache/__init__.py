"""The pieces of `bench/caching.py`: sessions, who trims them, and what is asked."""
