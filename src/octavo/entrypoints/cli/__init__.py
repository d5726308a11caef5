"""The command `octavo`. One file a subcommand; nothing heavy is imported until a subcommand needs it."""
