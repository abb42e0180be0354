"""New versions of the network in place of the old, back to old ones, and canaries, without losing a request."""
