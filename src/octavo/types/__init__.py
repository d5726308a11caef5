"""Structs that cross a process border (msgspec, never pickle). No torch, no logic beyond validation."""
