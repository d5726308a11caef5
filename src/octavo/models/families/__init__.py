"""One file a family: functions from a configuration to a `DecoderSpec`, found by `octavo.models.registry`."""
