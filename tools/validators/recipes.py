"""The recipe of torchtitan that a launch brings along, for models of which torchtitan has none.

`check_torchtitan` says the sizes of the model before the recipe is asked for: `--module recipes
--config recipe`.
"""

from pathlib import Path

_SOURCE = Path(__file__).resolve().parents[2] / "mofa_model/launch/programs/torchtitan.py.template"
exec(compile(_SOURCE.read_text("utf-8"), str(_SOURCE), "exec"))
