"""`python -m mofa_model` is `mofa`."""

import sys

from mofa_model.cli import main

sys.exit(main())
