"""Measures the package beside the ways in which Python programs read today.

    python bench.py DIRECTORY [--rounds 9] [--size 2G] [--files 50000]
        [--only weights,slow,cached,memory,files,tools] [--slowdisk target/release/slowdisk]

`slow` needs the program slowdisk of this project, and root: it makes a disk in memory whose requests take 1 ms, with a
readahead of 128 KiB. `memory` limits the memory of a control group (cgroups(7), version 1) to 60 % of the weights, and needs
root.
The contenders of a table are run in turn, each in a process of its own, with the same files in the same state
of the page cache. A ratio is the median over the rounds of (time of the first contender / time of nowait). Contenders
that are not installed are left out, and named.
"""

import argparse
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

# Each is a program; the time of the part after the imports is measured.
WEIGHTS = {
    "nowait": "import nowait, safetensors.numpy as s\nGO\nwith nowait.read_ahead(sys.argv[1]): s.load_file(sys.argv[1])",
    "alone": "import safetensors.numpy as s\nGO\ns.load_file(sys.argv[1])",
    "alone, pread": "import safetensors.numpy as s\nGO\ns.load_file(sys.argv[1], backend='pread')",
    "cat first": "import subprocess, safetensors.numpy as s\nGO\n"
    "subprocess.run(['cat', sys.argv[1]], stdout=subprocess.DEVNULL); s.load_file(sys.argv[1])",
    "fastsafetensors": "from fastsafetensors import SafeTensorsFileLoader, SingleGroup\nGO\n"
    "l = SafeTensorsFileLoader(SingleGroup(), device='cpu', nogds=True)\n"
    "l.add_filenames({0: [sys.argv[1]]}); b = l.copy_files_to_device()\n"
    "[b.get_tensor(k) for k in list(b.key_to_rank_lidx)]; b.close(); l.close()",
    "runai-model-streamer": "from runai_model_streamer import SafetensorsStreamer\nGO\n"
    "with SafetensorsStreamer() as s:\n    s.stream_file(sys.argv[1]); [0 for _ in s.get_tensors()]",
    "cat": "import subprocess\nGO\nsubprocess.run(['cat', sys.argv[1]], stdout=subprocess.DEVNULL)",
}
PARALLEL = (
    "from concurrent.futures import ThreadPoolExecutor\n"
    "size = os.path.getsize(sys.argv[1])\nfd = os.open(sys.argv[1], os.O_RDONLY)\n"
    "GO\nwith ThreadPoolExecutor(64) as e:\n"
    "    assert sum(map(len, e.map(lambda at: os.pread(fd, 1 << 20, at), range(0, size, 1 << 20)))) == size"
)
EACH = (
    "import nowait\nfrom safetensors import safe_open\n"
    "def load():\n"
    "    with safe_open(sys.argv[1], 'np') as f:\n"
    "        for name in f.keys(): assert f.get_tensor(name).max() > 0\n"
)
TENSORS = {
    "nowait": EACH + "GO\nwith nowait.read_ahead(sys.argv[1]) as r: load()\n"
    "report = r.report()\nprint(report, 'wasted', report.wasted_bytes, file=sys.stderr)",
    "alone": EACH + "GO\nload()",
}
FILES = {
    "nowait": "import nowait\nGO\nassert sum(len(d) for _, d in nowait.read_files(paths)) == total",
    "ThreadPoolExecutor(32)": "from concurrent.futures import ThreadPoolExecutor\n"
    "def read(p):\n    with open(p, 'rb') as f: return f.read()\nGO\n"
    "with ThreadPoolExecutor(32) as e: assert sum(map(len, e.map(read, paths))) == total",
}


def run(code: str, *arguments: object) -> float | None:
    """The time of the part of a program after GO; None if it cannot run."""
    code = "import sys, time, os\n" + code.replace("GO\n", "begin = time.perf_counter()\n")
    code += "\nprint(time.perf_counter() - begin)"
    command = [sys.executable, "-c", code, *map(str, arguments)]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode:
        print(*done.stderr.strip().splitlines()[-1:], f"(status {done.returncode})", file=sys.stderr)
        return None
    return float(done.stdout.splitlines()[-1])


def table(title: str, contenders: dict[str, str], rounds: int, prepare, *arguments: object) -> None:
    """Runs the contenders in turn, and prints the ratios."""
    times: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(rounds):
        for name in random.sample(list(contenders), len(contenders)):
            prepare()
            took = run(contenders[name], *arguments)
            if took is None:
                times[name] = []
                contenders = {k: v for k, v in contenders.items() if k != name}
            elif name in contenders:
                times[name].append(took)
    print(f"\n{title}: seconds, median of {rounds}; ratio to nowait (lowest to highest)")
    for name, took in times.items():
        if not took:
            print(f"  {name:24} does not run here")
            continue
        ratios = [a / b for a, b in zip(took, times["nowait"])]
        spread = f"{statistics.median(ratios):.2f} ({min(ratios):.2f}-{max(ratios):.2f})"
        print(f"  {name:24} {statistics.median(took):8.3f}  {spread}")


def model(path: Path, size: int) -> None:
    """Writes tensors of random bytes, 64 MiB each."""
    each = 64 << 20
    header = {
        str(i): {"dtype": "U8", "shape": [each], "data_offsets": [i * each, (i + 1) * each]}
        for i in range(size // each)
    }
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for _ in header:
            file.write(random.randbytes(each))
        os.fsync(file.fileno())


@contextmanager
def slow_disk(program: str, size: int) -> Iterator[Path]:
    """A disk whose requests take 1 ms, 64 at once, with a readahead of 128 KiB."""
    # 128 KiB is the default of the kernel.
    options = ["--latency", "1ms", "--queue", "64", "--read-ahead", "128", "--size", str(size)]
    with tempfile.TemporaryDirectory() as mount:
        server = subprocess.Popen([program, *options, mount], stdout=subprocess.PIPE)
        try:
            while not os.path.ismount(mount):
                assert server.poll() is None, "slowdisk has ended"
                time.sleep(0.05)
            yield Path(mount)
        finally:
            server.send_signal(signal.SIGINT)
            server.wait()


@contextmanager
def limited(size: int) -> Iterator[str]:
    """Code that enters a control group with this memory."""
    group = Path(f"/sys/fs/cgroup/memory/nowait-python-bench-{os.getpid()}")
    group.mkdir()
    try:
        (group / "memory.limit_in_bytes").write_text(str(size))
        yield f"open('{group}/cgroup.procs', 'w').write(str(os.getpid()))\n"
    finally:
        group.rmdir()


def main() -> None:
    import nowait

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--size", default="2G")
    parser.add_argument("--files", type=int, default=50_000)
    parser.add_argument("--only", default="weights,slow,cached,memory,files,tools")
    parser.add_argument("--slowdisk")
    options = parser.parse_args()
    chosen = options.only.split(",")
    units = {"M": 20, "G": 30}
    size = int(options.size[:-1]) << units[options.size[-1]]
    home = options.directory / f"nowait-python-bench-{os.getpid()}"
    home.mkdir()
    try:
        weights = home / "model.safetensors"
        if {"weights", "cached", "memory", "tools"} & set(chosen):
            model(weights, size)
        if "weights" in chosen:
            table("weights, cold", WEIGHTS, options.rounds, lambda: nowait.evict(weights), weights)
        if "slow" in chosen and options.slowdisk:
            with slow_disk(options.slowdisk, size + (size >> 3)) as disk:
                slow = disk / "model.safetensors"
                model(slow, size)
                contenders = {**WEIGHTS, "64 threads that read": PARALLEL}
                table("weights, disk of 1 ms", contenders, options.rounds, lambda: nowait.evict(slow), slow)
        if "memory" in chosen:
            with limited(size * 6 // 10) as enter:
                tensors = {name: enter + code for name, code in TENSORS.items()}
                table("tensors, memory limit of 60 %", tensors, options.rounds, lambda: nowait.evict(weights), weights)
        if "cached" in chosen:
            cached = {name: WEIGHTS[name] for name in ["nowait", "alone"]}
            table("weights, cached", cached, options.rounds, lambda: nowait.warm(weights), weights)
        if "files" in chosen:
            small = home / "small"
            small.mkdir()
            for i in range(options.files):
                (small / f"{i}").write_bytes(random.randbytes(4096))
            subprocess.run(["sync", "-f", small], check=True)
            begin = f"paths = [sys.argv[1] + f'/{{i}}' for i in range({options.files})]\ntotal = {4096 * options.files}\n"
            files = {name: begin + code for name, code in FILES.items()}
            table("small files, cold", files, options.rounds, lambda: nowait.evict(small), small)
        if "tools" in chosen:
            program = Path(sys.executable).parent / "nowait"
            for verb in ["warm", "evict"]:
                tools = {
                    "nowait": f"import nowait\nGO\nnowait.{verb}(sys.argv[1])",
                    "the program": f"import subprocess\nGO\nsubprocess.run(['{program}', '{verb}', sys.argv[1]], stdout=-3)",
                }
                prepare = {"warm": nowait.evict, "evict": nowait.warm}[verb]
                table(verb, tools, options.rounds, lambda: prepare(weights), weights)
        print(f"\n{time.strftime('%Y-%m-%d')}, {os.uname().release}, {options.size}, {sys.version.split()[0]}")
    finally:
        subprocess.run(["rm", "-rf", home], check=True)


if __name__ == "__main__":
    main()
