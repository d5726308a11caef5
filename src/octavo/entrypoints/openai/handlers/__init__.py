"""One file a route family. Handlers turn bodies into engine requests and outputs into bodies; no engine logic here."""
