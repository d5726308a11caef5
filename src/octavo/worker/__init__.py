"""One rank's share of the work: the persistent batch, the page tensors and the step."""
