"""Commands about what a fleet consists of: one instance, and saved views of the list of agents."""
