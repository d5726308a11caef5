"""From a prompt to tokens: arguments, the request flow that does no I/O, the core's loop, and the fronts over both."""
