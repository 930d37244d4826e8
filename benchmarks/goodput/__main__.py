"""Fault traces in virtual time: what forbear and its peers do to a server in trouble, and what they get from it.

python benchmarks/goodput                      all traces, all competitors, in several minutes
python benchmarks/goodput --trace outage --competitor forbear --seeds 10
python benchmarks/goodput --range --trace overload
"""

import virtual

virtual.install()  # before any library is imported

import argparse  # noqa: E402
import json  # noqa: E402
import os  # noqa: E402
import sys  # noqa: E402
from pathlib import Path  # noqa: E402

import pictures  # noqa: E402
import report  # noqa: E402
from peers import quiet  # noqa: E402
from runs import TRACES, Wanted, all_played, competitors, units  # noqa: E402


def options() -> argparse.Namespace:
    names = sorted({peer.name for trace in TRACES.values() for peer in competitors(trace)})
    parser = argparse.ArgumentParser(
        prog="benchmarks/goodput", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--trace", action="append", choices=TRACES, default=[], help="only this one; may be repeated")
    parser.add_argument(
        "--competitor",
        action="append",
        choices=names,
        default=[],
        metavar="NAME",
        help=f"one of: {'; '.join(names).replace('%', '%%')}",
    )
    parser.add_argument("--seeds", type=int, default=1, help="runs with other dice (default %(default)s)")
    parser.add_argument("--quick", action="store_true", help="small traces, in seconds")
    parser.add_argument(
        "--range", action="store_true", help="points around each trace's own: min and max of each figure"
    )
    parser.add_argument("--attempts", type=int, help="so many attempts a call, where the deadline alone is the limit")
    parser.add_argument("--jobs", type=int, default=min(2, os.cpu_count() or 1), help="processes (default %(default)s)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures as JSON, too")
    parser.add_argument("--svg", type=Path, metavar="DIR", help="write pictures, too")
    return parser.parse_args()


def main() -> None:
    asked = options()
    quiet()
    wanted = Wanted(
        traces=tuple(asked.trace),
        competitors=tuple(asked.competitor),
        seeds=asked.seeds,
        quick=asked.quick,
        around=asked.range,
        attempts=asked.attempts,
    )
    results = list(all_played(units(wanted), asked.jobs))
    print(report.report(results, ranged=asked.range, seeds=asked.seeds, judged=not asked.quick))
    if asked.json:
        asked.json.write_text(
            json.dumps(report.as_data(results), indent=2, ensure_ascii=False) + "\n", encoding="utf-8"
        )
    if asked.svg:
        runs = {name: report.series_of(results, name) for name in TRACES}
        for path in pictures.draw(runs, asked.svg):
            print(f"wrote {path}", file=sys.stderr)


if __name__ == "__main__":
    main()
