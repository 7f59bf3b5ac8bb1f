"""TCP over gRPC: byte streams in the reverse direction, through a connection that the far end opened."""
