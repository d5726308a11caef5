"""`octavo bench`: one file a command. Flags, names in reports and keys of result files are those of `vllm bench`."""
