#!/usr/bin/env python3
"""Judges records again, by other means: python3 tools/verdicts.py MAJORFAULT RECORDS...

The tests are those of `MAJORFAULT reproduce --list --json`; all else is computed anew (figures.py has the figures), and each
session's verdict compared with `MAJORFAULT reproduce --from RECORDS --json`. Exit 1 where one differs. For sessions of at
most 11 repetitions."""
import gzip, json, math, subprocess, sys
from statistics import median, stdev
sys.dont_write_bytecode = True
from figures import figure

INF, HOLDS, FAILS = math.inf, "holds here", "does not hold here"
OPEN, CANNOT = "undecided, run more", "cannot be tested here"
M = [14.082, 5.364, 4.160, 3.717, 3.491, 3.353, 3.261, 3.195, 3.145, 3.107]  # Bloom's M: t(0.975) + t(0.80), 1 to 10 d.o.f.

def bounds(r, side):  # the least and the most that it can be in truth
    floor = -INF if side["at_least"] is None else side["at_least"]
    is_untold = side["is_time"] and any("times are not" in remark for remark in r["machine"]["remarks"])  # emulated
    if is_untold or (least := figure(r, side["figure"], "tlb_shootdowns")) is None: return None
    asked, most = figure(r, side["figure"], "tlb_flush_remote_send_ipi"), least
    if side["may_be_hidden"] and any("counts too few" in remark for remark in r["machine"]["remarks"]):
        most = INF if asked is None else max(least, asked * (r["machine"]["cpus"] - 1))
    return max(least, floor), max(most, floor)
def is_valid(r): return r["outcome"] == "done" and all(gate["finding"] != "spoiled" for gate in r["gates"])
def values(cells, side, rest):  # by repetition; of several cells, each time the one that is least in the other repetitions
    runs = [[r for r in cells.get(name.rstrip("*") + rest, []) if is_valid(r)] for name in side["cells"]]
    arms = [{r["trial"]["repetition"]: b for r in cell if (b := bounds(r, side))} for cell in runs]
    others = lambda turn: [(median([b[0] for t, b in arm.items() if t != turn]), i) for i, arm in enumerate(arms) if set(arm) - {turn}]
    return arms[0] if len(arms) == 1 else {t: b for t in set().union(*arms) if others(t) and (b := arms[min(others(t))[1]].get(t))}
def without(records):  # what a cell without values comes to
    outcomes = [r["outcome"] for r in records]
    return CANNOT if any(map(is_valid, records)) or outcomes and "done" not in outcomes and outcomes[0] != "interrupted" else OPEN

def beside(s, edge, is_ratio):  # whether samples lie surely below an edge, up to it, from it on, above it
    if math.isinf(edge): return edge > 0, edge > 0, edge < 0, edge < 0
    if not all(map(math.isfinite, s)): return False, False, False, False
    k = max(k for k in range(len(s) // 2) if k == 0 or sum(math.comb(len(s), i) for i in range(k + 1)) / 2**len(s) <= 0.025)
    low, high, logs = sorted(s)[k], sorted(s)[-1 - k], [math.log(x) for x in s if x > 0]
    if not is_ratio: return high < edge, high <= edge, low >= edge, low > edge
    is_far = len(logs) > 1 and abs(math.log(max(median(s), 1e-300) / edge)) > M[len(logs) - 2] * stdev(logs) / len(logs)**0.5
    return is_far and high < edge, is_far and high < edge, is_far and low > edge, is_far and low > edge
def judge(test, cells, rest):
    sides = [side for side in (test["first"], test["second"]) if side]
    found = [values(cells, side, rest) for side in sides]
    if {} in found: return without(cells.get(sides[found.index({})]["cells"][0].rstrip("*") + rest, []))
    both = [(found[0][turn], found[-1][turn]) for turn in found[0] if turn in found[-1]]
    pairs = {"ratio": [(a[0] / b[1], a[1] / b[0]) for a, b in both if b[0] > 0], "difference": [(a[0] - b[1], a[1] - b[0]) for a, b in both]}
    pairs, is_ratio = pairs.get(test["what"], [a for a, _ in both]), test["what"] == "ratio"
    low, high = -INF if test["low"] is None else test["low"], INF if test["high"] is None else test["high"]
    unsure = CANNOT if any(a != b for a, b in pairs) else OPEN
    if test["what"] == "every run":
        if all(most < low or least > high for least, most in pairs): return FAILS
        return HOLDS if all(low <= least and most <= high for least, most in pairs) else unsure
    if test["what"] == "some run" and any(low <= least and most <= high for least, most in pairs): return HOLDS
    if len(pairs) < 6: return OPEN
    if test["what"] == "some run": return FAILS
    least, most = zip(*pairs)
    if beside(most, low, is_ratio)[0] or beside(least, high, is_ratio)[3]: return FAILS
    return HOLDS if beside(least, low, is_ratio)[2] and beside(most, high, is_ratio)[1] else unsure
def verdict(row, cells):
    for found in (judge(need, cells, "") for need in row["needs"]):
        if found != HOLDS: return CANNOT if found == FAILS else found
    star = lambda name, but: [cell[len(name) - 1:] for cell in cells if cell.startswith(name[:-1]) and cell[len(name) - 1:] not in but] if name[-1] == "*" else [""]
    found = [judge(test, cells, rest) for test in row["tests"] for rest in star(test["first"]["cells"][0], test["except"]) or ["*"]]
    return next((each for each in (FAILS, CANNOT, OPEN) if each in found), HOLDS)

def main(tool, *paths):
    ask = lambda *words: json.loads(subprocess.run([tool, "reproduce", *words, "--json"], stdout=subprocess.PIPE).stdout)
    theirs, sessions, differ, count = {claim["id"]: claim for claim in ask("--from", *paths)["claims"]}, {}, 0, 0
    for r in (json.loads(line) for path in paths for line in (gzip.open if path.endswith(".gz") else open)(path, "rt")):
        where = r.get("cell") or {"experiment": "", "name": ""}
        sessions.setdefault((r["session"], where["experiment"]), {}).setdefault(where["name"], []).append(r)
    for row in (row for row in ask("--list")["rows"] if row["judge"] == "claim"):
        ours = {name: verdict(row, cells) for (name, experiment), cells in sessions.items() if experiment == row["experiment"]}
        if ours != (said := {it["session"]: it["verdict"] for it in theirs[row["id"]]["sessions"]}):
            print(f"{row['id']}: {ours}, but majorfault says {said}")
        differ, count = differ + (ours != said), count + len(ours)
    print(f"{count} verdicts recomputed, {differ} rows differ")
    return 1 if differ or not count else 0

if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
