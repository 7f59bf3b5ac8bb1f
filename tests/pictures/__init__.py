"""Pictures of pages of a real demo, made the same way each time."""
