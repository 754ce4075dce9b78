"""What is done to drawn images: grain taken off, bends."""
