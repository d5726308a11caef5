"""What a model is put together from: parts (frozen values, no torch) and the layers that are built from them."""
