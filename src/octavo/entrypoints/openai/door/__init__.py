"""What stands before the handlers: keys, limits, deadlines, names and logs. Plain ASGI, no buffering."""
