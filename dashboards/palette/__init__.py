"""The palette of every page: finds pages, actions and objects of a cluster by name. docs/reference/keys.md."""
