"""Frameworks as their users run them, against a server on this machine."""
