"""The figures of tests: formulas over what a record says, and the atoms that they are made of."""
from statistics import median

def phase(r): return next(p for p in r["phases"] if p["name"] == "visit")
def summed(r, key): return sum(thread[key] for thread in r["threads"])
def series(r, name):
    return [p for p in zip(r["timeline"]["at_ns"], r["timeline"]["counters"][name]) if p[0] >= 0 and p[1] is not None]
def full(r):  # when memory was full; None, which no arithmetic takes, where it never was
    return next((at for at, used in series(r, "cgroup_usage_bytes") if used >= 0.95 * r["trial"]["memory_bytes"]), None)
def slow(r):  # share of the intervals in which the device read at less than half of its median rate
    s = series(r, "device_read_bytes")
    rates = [(b[1] - a[1]) / (b[0] - a[0]) for a, b in zip(s, s[1:]) if b[0] - a[0] > 50e6][2:-2]
    return sum(x < median(rates) / 2 for x in rates) / len(rates) if len(rates) >= 5 else None
def level(r, width_ns):  # lowest mean of a stretch once memory was full (without a width: their median), over the median before
    step, counts = r["timeline"]["interval_ns"], r["timeline"]["accesses"][:-1]
    before, after, width = counts[:full(r) // step], counts[full(r) // step:], width_ns and max(width_ns // step, 1)
    low = min(sum(after[i:i + width]) / width for i in range(len(after) - width + 1)) if width else median(after)
    return None if len(before) < 3 or len(after) < 10 else low / median(before)
def growth(r, name, late):  # of a counter in a second, before memory was full or from then on
    s, at = series(r, name), full(r)
    middle = next(p for p in s if p[0] >= at)
    a, b = (middle, s[-1]) if late else (s[0], middle)
    return (b[1] - a[1]) * 1e9 / (b[0] - a[0])
ATOMS = {  # the second argument: the counter of shootdowns, or that of requests, among which the hidden ones are
    "ns visit": lambda r, _: phase(r)["wall_ns"], "seconds visit": lambda r, _: phase(r)["wall_ns"] / 1e9,
    "seconds total": lambda r, _: sum(p["wall_ns"] for p in r["phases"]) / 1e9, "size": lambda r, _: r["trial"]["data"]["size_bytes"],
    "accesses": lambda r, _: summed(r, "accesses"), "4096 accesses": lambda r, _: 4096 * summed(r, "accesses"),
    "bytes": lambda r, _: summed(r, "bytes"), "memory limit": lambda r, _: r["trial"]["memory_bytes"],
    "share below half the median rate": lambda r, _: slow(r), "level after full memory": lambda r, _: level(r, 0),
    "lowest half second after full memory": lambda r, _: level(r, 500_000_000),
    "shootdowns a second before full memory": lambda r, c: growth(r, c, False),
    "shootdowns a second after full memory": lambda r, c: growth(r, c, True),
    "devices": lambda r, _: len({file["device"] for file in r["files"][0]}) or None,
    "whole and right": lambda r, _: r["answer"] == "checked" and summed(r, "bytes") == r["trial"]["data"]["size_bytes"]}

def atom(r, name, shootdowns):
    if name.startswith("own "): return r.get("figures", {})[name[4:]]
    if name == "counter tlb_shootdowns": return phase(r)["counters"][shootdowns]
    if name.startswith("counter "): return phase(r)["counters"][name[8:]]
    return ATOMS[name](r, shootdowns)
def figure(r, formula, shootdowns):  # "a + b / c"; None where the record does not tell
    try:
        top, *below = [sum(atom(r, name, shootdowns) for name in part.split(" + ")) for part in formula.split(" / ")]
        return top / below[0] if below else top
    except (KeyError, StopIteration, ZeroDivisionError, TypeError): return None
