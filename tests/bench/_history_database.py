"""One database of the bench `history`, in a process of its own: `python -m tests.bench._history_database ROWS AGENTS`.

DATABASE_URL, REDIS_URL and REFLOAT_HOME say which. The last line is a JSON object of figures.
"""

from __future__ import annotations

import json
import os
import sys

import django


def main() -> None:
    """Set up Django, measure, and print the figures."""
    os.environ["DJANGO_SETTINGS_MODULE"] = "dashboards.config.settings"
    django.setup()
    from tests.bench._history_measurements import measure_database

    print(json.dumps(measure_database(int(sys.argv[1]), int(sys.argv[2]))))


if __name__ == "__main__":
    main()
