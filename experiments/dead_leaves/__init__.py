"""The network `leaves`: pictures of made-up objects, and what learns from them."""
