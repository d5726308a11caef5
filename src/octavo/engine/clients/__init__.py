"""How a front reaches an engine core: in its own process by calls, or in another one by frames on a unix socket."""
