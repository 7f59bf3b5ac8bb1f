"""TCP over gRPC: a byte stream in reverse, through a connection that the far end opened."""
