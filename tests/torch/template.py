"""Has imported torch, and runs programs in copies of itself. Started by `rig.py`.

A line of JSON on its input asks for a copy: the words of a Python program, its environment, the file that it writes to,
and a file for its exit status. The answer is the process number of the copy's session.
"""
import json
import os
import signal
import sys
import types
from pathlib import Path

import torch  # noqa: F401  what every copy needs, and takes long


def run(job):
    """In a copy: what the job says, as if Python had been started for it."""
    os.environ.update(job["env"])
    sys.argv = job["words"]
    log = os.open(job["log"], os.O_WRONLY | os.O_APPEND)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for (file, number) in ((nothing, 0), (log, 1), (log, 2)):
        os.dup2(file, number)
    program = sys.argv[0]
    main = sys.modules["__main__"] = types.ModuleType("__main__")
    main.__file__, sys.path[0] = program, str(Path(program).parent)
    # Not by runpy, whose frames would be among those that an allocation is recorded with.
    exec(compile(Path(program).read_text(encoding="utf-8"), program, "exec"), vars(main))


def keep(job):
    """In a session of its own: has a copy do the job, and writes down how it ended."""
    os.setsid()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    copy = os.fork()
    if not copy:
        return run(job)
    status = os.waitstatus_to_exitcode(os.waitpid(copy, 0)[1])
    with open(job["status"] + ".part", "w", encoding="ascii") as file:
        file.write(str(status))
    os.rename(job["status"] + ".part", job["status"])
    os._exit(0)


def main():
    # Nobody asks for the status of those that keep one.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    for line in sys.stdin:
        job = json.loads(line)
        pid = os.fork()
        if not pid:
            return keep(job)
        print(pid, flush=True)


if __name__ == "__main__":
    main()
