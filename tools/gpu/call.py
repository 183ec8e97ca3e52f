"""One call of tools/gpu_run: its checks, its time, its summary and its archive."""
import importlib.util
import os
import pathlib
import re
import shutil
import signal
import subprocess
import tarfile
import tempfile
import threading
import time

import summary

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = ROOT / "build/release"  # of programs: in the checkout and in the package
MOST_SECONDS = 525  # of a call


def torch_folders():
    """The folders of libtorch's libraries, found without importing torch."""
    torch = importlib.util.find_spec("torch")
    if torch is None or torch.origin is None:
        return []
    packages = pathlib.Path(torch.origin).parent.parent
    return [packages / "torch/lib", *sorted(packages.glob("nvidia/*/lib"))]


class Call:
    """Checks run one after another, or some side by side; each writes logs/NAME.log."""

    def __init__(self, number, name, out, dry_run):
        self.number, self.name, self.out, self.dry_run = number, name, out, dry_run
        self.device = "cpu" if dry_run else "cuda"
        self.end = time.monotonic() + MOST_SECONDS
        self.work = pathlib.Path(tempfile.mkdtemp(prefix="gpu_run."))
        self.logs = self.work / "logs"
        self.logs.mkdir()
        self.checks, self.tables, self.lock = [], {}, threading.Lock()
        # Only for the packed programs: the machine's tools use their own libraries.
        folders = [BUILD / "lib", *torch_folders(), os.environ.get("LD_LIBRARY_PATH", "")]
        self.libraries = {"LD_LIBRARY_PATH": ":".join(str(one) for one in folders if str(one))}

    def note(self, name, state, seconds=0.0):
        with self.lock:
            self.checks.append({"call": self.number, "name": name, "state": state,
                                "seconds": round(seconds, 1)})
        print(f"{name:<36} {state} ({seconds:.1f} s)", flush=True)
        return state == "passed"

    def check(self, name, *command, limit=MOST_SECONDS, table=False, expect=None, **environment):
        """Runs the command until it ends, or the limit or the call's time. Passed: it returns 0
        and prints what matches `expect`. table: its output becomes part of the summary."""
        seconds = min(limit, self.end - time.monotonic())
        if seconds <= 0:
            return self.note(name, "failed: no time left")
        start = time.monotonic()
        log = self.logs / f"{name}.log"
        with open(log, "w", encoding="utf-8") as file:
            file.write("+ " + " ".join(map(str, command)) + "\n")
            file.flush()
            try:
                process = subprocess.Popen(
                    [str(word) for word in command], stdout=file, stderr=subprocess.STDOUT,
                    cwd=ROOT, env={**os.environ, **environment}, start_new_session=True)
            except OSError as error:
                return self.note(name, f"failed: {error}")
            status = wait(process, seconds)
        text = log.read_text(encoding="utf-8", errors="replace")
        if table:
            self.tables[name] = text.split("\n", 1)[1]
        if status is None:
            state = f"failed: took longer than {seconds:.0f} s"
        elif status != 0:
            state = f"failed: exit {status}: {last_line(text)}"
        else:
            found = expect is None or re.search(expect, text)
            state = "passed" if found else f"failed: printed no '{expect}'"
        return self.note(name, state, time.monotonic() - start)

    def run(self, name, program, *arguments, prefix=(), **options):
        """check() of a program of the build folder."""
        path = BUILD / program
        if not path.exists():
            return self.note(name, f"failed: there is no {path}")
        return self.check(name, *prefix, path, *arguments, **self.libraries, **options)

    def exists(self, name, program):
        """In a dry run, in place of run() where that needs a GPU or takes long."""
        path = BUILD / program
        return self.note(name, "passed" if os.access(path, os.X_OK) else f"failed: no {path}")

    def test(self, name, program, only, shards=1, **environment):
        """Tests of a program, in `shards` processes side by side; in a dry run only their list."""
        def shard(index):
            own = f"{name}-{index}" if shards > 1 else name
            self.run(own, f"bin/{program}", f"--gtest_filter={only}",
                     f"--gtest_output=json:{self.logs}/{own}.tests.json",
                     *(["--gtest_list_tests"] if self.dry_run else []),
                     GTEST_TOTAL_SHARDS=str(shards), GTEST_SHARD_INDEX=str(index), **environment)
        self.together(*(lambda index=index: shard(index) for index in range(shards)))

    @staticmethod
    def together(*jobs):
        threads = [threading.Thread(target=job) for job in jobs]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def finish(self):
        """Writes call-N.json, call-N.md and call-N.tgz. Returns the number of failures."""
        self.out.mkdir(parents=True, exist_ok=True)
        result = summary.of_call(self)
        stem = self.out / f"call-{self.number}"
        summary.write([result], stem)
        with tarfile.open(f"{stem}.tgz", "w:gz") as archive:
            archive.add(self.logs, arcname=f"call-{self.number}")
        shutil.rmtree(self.work)
        print(summary.verdict([result]) + f"; {stem}.md, .json and .tgz")
        return result["failed"]


def wait(process, seconds):
    """The exit status, or None after the time: a bench that gets SIGTERM writes its results."""
    for ask, patience in [(None, seconds), (signal.SIGTERM, 20), (signal.SIGKILL, None)]:
        if ask is not None:
            os.killpg(process.pid, ask)
        try:
            status = process.wait(patience)
            return status if ask is None else None
        except subprocess.TimeoutExpired:
            pass
    return None


def last_line(text):
    lines = text.strip().splitlines()
    return lines[-1][:160] if lines else ""
