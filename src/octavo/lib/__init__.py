"""Single-purpose leaves: each module stands alone and imports nothing of Octavo but its neighbours' errors."""
