"""`python -m seeklog.cli`, the same as `seeklog`."""

import sys

from seeklog.cli.main import main

sys.exit(main())
