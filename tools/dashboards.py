"""Make deploy/grafana/*.json from deploy/grafana/mofa_dashboards; --check compares. Needs
grafana-foundation-sdk.
"""

import importlib.util
import json
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "deploy" / "grafana"
SDK = "grafana_foundation_sdk"


def files() -> dict[Path, str]:
    """Files of deploy/grafana, with the text that each should have."""
    sys.path[:0] = [str(FOLDER), str(ROOT / "tools")]
    import rules
    from grafana_foundation_sdk.cog.encoder import JSONEncoder
    from mofa_dashboards.advisor import advisor
    from mofa_dashboards.assumptions import assumptions
    from mofa_dashboards.fleet import fleet
    from mofa_dashboards.job import job

    parameters = rules.parameters()
    made = {make.__name__: make(parameters).build() for make in (fleet, job, assumptions, advisor)}
    for board in made.values():
        for number, panel in enumerate(board.panels or [], start=1):
            panel.id_val = number  # a link to a panel needs it
    return {
        FOLDER / f"{name}.json": json.dumps(
            board, cls=JSONEncoder, indent=2, sort_keys=True, ensure_ascii=False
        )
        + "\n"
        for name, board in made.items()
    }


def main() -> int:
    """Write the files, or with --check say which differ; nothing is checked without the SDK."""
    import generated

    if importlib.util.find_spec(SDK) is None:
        print(
            f"dashboards: {SDK} is not installed, so the files were not made anew", file=sys.stderr
        )
        return 0 if "--check" in sys.argv[1:] else 1
    return generated.main(
        "dashboards", "Make deploy/grafana/*.json from deploy/grafana/mofa_dashboards.", files
    )


if __name__ == "__main__":
    sys.exit(main())
