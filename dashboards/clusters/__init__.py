"""Pages of clusters: list, forms, connection test, and the steps of the first set-up. docs/reference/clusters.md."""
