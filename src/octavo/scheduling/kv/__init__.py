"""Bookkeeping of key-value pages: the pool, the prefix index, page groups and the tables of the requests."""
