"""What synthetic images are worth to whoever trains on them."""
