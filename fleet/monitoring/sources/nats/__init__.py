"""Evidence of NATS hubs and their leaf nodes, from the monitoring port: docs/how-to/watch-nats-leaf-nodes.md."""
