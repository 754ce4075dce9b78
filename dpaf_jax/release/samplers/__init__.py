"""From released parameters to images, by the method's name."""
