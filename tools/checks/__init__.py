"""House rules as programs: each module is one check and exits non-zero with what to mend."""
