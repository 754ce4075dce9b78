"""A network that has learnt from public photographs: what it sees in an image."""
