"""One format a file: how a family of models writes its tool calls, its reasoning, or both.

A file's `FORMAT` says what `--tool-call-parser` and `--reasoning-parser` take under which names; the registry finds it.
"""
