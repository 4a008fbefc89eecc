"""Make deploy/grafana/*.json from deploy/grafana/mofa_dashboards; --check compares. Needs
grafana-foundation-sdk.
"""

import argparse
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
    """Write the files, or say which are not what the code says."""
    parser = argparse.ArgumentParser(
        description="Make deploy/grafana/*.json from deploy/grafana/mofa_dashboards."
    )
    parser.add_argument(
        "--check", action="store_true", help="write nothing; fail where a file differs"
    )
    check = parser.parse_args().check
    if importlib.util.find_spec(SDK) is None:
        print(
            f"dashboards: {SDK} is not installed, so the files were not made anew", file=sys.stderr
        )
        return 0 if check else 1
    made = files()
    stale = [
        path
        for path, text in made.items()
        if not path.exists() or path.read_text(encoding="utf-8") != text
    ]
    for path in stale:
        shown = path.relative_to(ROOT)
        if check:
            print(
                f"dashboards: {shown} is not what its code says; run `make dashboards`",
                file=sys.stderr,
            )
        else:
            path.write_text(made[path], encoding="utf-8")
            print(shown)
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
