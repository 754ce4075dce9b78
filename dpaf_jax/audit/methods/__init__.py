"""What an audit can run of each method."""
