"""What the Makefile runs beside the product."""
