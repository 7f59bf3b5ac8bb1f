"""Evidence of a stock Teleport cluster, from one of its auths: docs/how-to/watch-a-teleport-cluster.md."""
