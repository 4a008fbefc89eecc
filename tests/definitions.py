"""The definitions of our kinds, as they are shipped; tests/mofa_model/manifest/test_crds.py holds
them to the models.
"""

from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parent.parent
SHIPPED = {
    path.name: yaml.load(path.read_text("utf-8"), yaml.CSafeLoader)
    for path in sorted((ROOT / "crds").glob("*.yaml"))
}
"""Each by its file."""
