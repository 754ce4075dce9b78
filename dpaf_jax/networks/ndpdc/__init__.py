"""What NDPDC alone looks at images with: random features, and one change for all images."""
