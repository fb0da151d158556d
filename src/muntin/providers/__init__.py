"""Providers: windows as the requests of each vendor, and their answers; clients that send them.

Encoding and decoding are pure functions. An SDK is imported when one of its models is asked for.
"""
