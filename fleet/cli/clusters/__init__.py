"""Commands about clusters and their sources that need no console."""
