#!/usr/bin/env python3
"""Prints the table of the measurements of run.sh: table.py FILE"""

import statistics
import sys

order = ["default", "io_uring", "sync", "patch", "nowait", "threads"]
values = {}  # (row, measure) -> contender -> values of the rounds
for line in open(sys.argv[1]):
    row, contender, result = line.rstrip("\n").split("\t")
    result = dict(pair.split("=") for pair in result.split())
    assert result["wrong"] == "0", line
    if row.startswith("cold"):
        names = "cold_per_s", "cpu_us"
    elif row.startswith("beside"):
        names = "p50_us", "p99_us", "hits_per_s", "cold_per_s"
    else:
        names = "p50_us", "p99_us", "hits_per_s", "cpu_us"
    for name in names:
        values.setdefault((row, name), {}).setdefault(contender, []).append(float(result[name]))
print(f"{'':38}" + "".join(f"{c:>22}" for c in order))
for (row, name), of in values.items():
    cells = [f"{statistics.median(of[c]):g} ({min(of[c]):g}-{max(of[c]):g})" if c in of else "-" for c in order]
    print(f"{row + ', ' + name:38}" + "".join(f"{cell:>22}" for cell in cells))
    ratios = []
    for c in order:
        # The last round may lack some contenders.
        pairs = [a / b for a, b in zip(of.get("nowait", []), of.get(c, [])) if b and c != "nowait"]
        ratios.append(f"{statistics.median(pairs):.2f} ({min(pairs):.2f}-{max(pairs):.2f})" if pairs else "")
    print(f"{'    nowait / it':38}" + "".join(f"{cell:>22}" for cell in ratios))
