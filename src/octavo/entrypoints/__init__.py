"""The faces: the command line, the HTTP servers and the offline class."""
