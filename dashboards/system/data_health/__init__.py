"""*Data health*: page and API of `fleet.management.data_health`. docs/reference/data-health.md."""
