"""Typed bodies of requests and answers."""
