"""What methods with a discriminator that learns by DP-SGD share."""
