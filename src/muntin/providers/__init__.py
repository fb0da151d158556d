"""Providers: windows as the requests of each vendor. Pure functions, no SDK is imported."""
