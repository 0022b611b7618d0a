"""Programs beside each other, interleaved: beside.py warm|cold ROUNDS NAME=COMMAND...

The first is what the others are compared with. Cold: all caches are dropped before each run (root), and
the program itself is read again. Prints JSON: milliseconds of each run, wall and processor.
"""
import json, os, statistics, subprocess, sys, time

cold, rounds = sys.argv[1] == "cold", int(sys.argv[2])
commands = dict(word.split("=", 1) for word in sys.argv[3:])
wall, cpu = {name: [] for name in commands}, {name: [] for name in commands}
for turn in range(rounds + 1):
    for name in list(commands)[:: 1 if turn % 2 else -1]:
        words = commands[name].split()
        if cold:
            with open("/proc/sys/vm/drop_caches", "w") as drop:
                drop.write("3")
            subprocess.run([words[0], "--version"], stdout=subprocess.DEVNULL)
        before, begin = os.times(), time.perf_counter()
        subprocess.run(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        took, after = time.perf_counter() - begin, os.times()
        # The first turn warms what is to be warm.
        if turn > 0:
            wall[name].append(took * 1e3)
            spent = after.children_user + after.children_system
            spent -= before.children_user + before.children_system
            cpu[name].append(spent * 1e3)
first = next(iter(commands))
for name in commands:
    ratios = [a / b for a, b in zip(wall[first], wall[name])]
    print(json.dumps({
        "name": name,
        "median_ms": round(statistics.median(wall[name]), 2),
        "ratio": round(statistics.median(ratios), 2),
        "ratios_from_to": [round(min(ratios), 2), round(max(ratios), 2)],
        "cpu_median_ms": round(statistics.median(cpu[name]), 1),
        "wall_ms": [round(t, 2) for t in wall[name]],
    }))
