"""Measurements. Speed is judged here, never in a test."""
