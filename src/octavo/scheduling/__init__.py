"""Who runs in the next step, and which pages they write to. Pure Python: never torch, never numpy."""
