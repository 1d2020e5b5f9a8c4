"""Records what PyTorch's own CUDA allocator does, with PyTorch's own recorder, and writes its snapshots.

Nothing here may break the program: what cannot be done is a warning.
"""

import atexit
import functools
import importlib
import math
import os
import pickle
import signal
import sys
import threading
import time

from granule_hook import say, warn
from granule_record_options import Options

MAX_ENTRIES = 200_000
# An entry in a snapshot's file.
BYTES_AN_ENTRY = 70
# What the name of the snapshot of what there is so far ends with. A process that ended well has none.
SO_FAR = "so-far"
# The share of new entries in the ring at which the next file is due: what comes before it is written has the rest.
DUE = 0.6
# Seconds after which the ring is looked at again, at the latest.
MOST_WAIT = 0.25
# Between two snapshots of what there is so far: this many seconds, or times what the last one took.
BETWEEN_SO_FAR = 1.0
SHARE_SO_FAR = 100
# Seconds that a snapshot waits for another one.
MOST_PATIENCE = 120
# Seconds between snapshots for want of memory: a program that tries sizes until one fits fails many times a second.
BETWEEN_FAILURES = 10


def start(torch):
    text = os.environ.get("GRANULE_RECORD")
    if text:
        options = Options.parse(text)
        own = OwnRecording(torch)
        # When the program first uses CUDA; before that there is nothing to record.
        torch.cuda._lazy_call(lambda: guarded(begin, torch, options, own))


def guarded(action, *arguments):
    """Calls, and warns of what failed."""
    try:
        return action(*arguments)
    except Exception as error:
        warn(f"recording: {type(error).__name__}: {error}")
        return None


def begin(torch, options, own):
    granule = sys.modules.get("granule_torch")
    if granule is not None and granule.is_enabled():
        return  # Its library reads GRANULE_RECORD itself, and writes an exact trace.
    backend = torch.cuda.get_allocator_backend()
    if backend == "native":
        own.recorder = Recorder(torch, options)
        own.recorder.start()
    else:
        warn(f"nothing is recorded: PyTorch's recorder is part of its native allocator, and this one is {backend!r}")


class OwnRecording:
    """The program's own calls of PyTorch's recorder, of which there is one. They do as they say, but what was recorded until
    then is written first where they wipe it, the history keeps what Granule needs, and what they switch off goes on."""

    # Where the calls have max_entries and clear_history.
    CALLS = {"_cuda_record_memory_history": (3, 4), "_cuda_record_memory_history_legacy": (2, 5)}

    def __init__(self, torch):
        self.recorder, self.is_said = None, False
        for name, places in self.CALLS.items():
            if hasattr(torch._C, name):
                setattr(torch._C, name, functools.partial(self.called, getattr(torch._C, name), *places))

    def called(self, record, entries, clear, *words):
        recorder, words = self.recorder, list(words)
        if recorder is not None and recorder.is_starting:
            return record(*words)
        if not self.is_said:
            self.is_said = True
            say_own(sys._getframe(1))
        if recorder is None or recorder.over.is_set() or os.getpid() != recorder.process:
            return record(*words)
        is_off = not words[0]
        if (is_off or any(words[clear : clear + 1])) and not recorder.options.on_oom:
            recorder.write("before-own")
        if len(words) > entries:
            words[entries] = max(words[entries], recorder.entries)
        record(*words)
        if is_off:
            guarded(recorder.record)


def say_own(frame):
    while frame.f_back is not None and os.path.basename(os.path.dirname(frame.f_code.co_filename)) == "cuda":
        frame = frame.f_back
    warn(f"the program uses PyTorch's recorder itself (torch.cuda.memory._record_memory_history, in {frame.f_code.co_filename}:"
         f"{frame.f_lineno}), of which there is one: what it wipes is in a file before, and its own snapshots may hold more "
         "than without granule record")


class Recorder:
    """PyTorch's recorder in this process, and the files that were written."""

    def __init__(self, torch, options):
        self.torch, self.options = torch, options
        self.entries = options.max_entries or MAX_ENTRIES
        if options.rotate and not options.max_entries:
            self.entries = max(1000, options.rotate // BYTES_AN_ENTRY)
        # `over`: the end has begun; `is_over`: the last file is written.
        self.process, self.over, self.is_over = os.getpid(), threading.Event(), False
        self.writing, self.writers = threading.Lock(), set()
        # Of ordinary files and of those about failures: the newest of each are kept.
        self.files = {False: [], True: []}
        self.number, self.stood_still = 0, 0.0
        self.last_failure, self.failures_left_out = None, 0
        self.follower, self.is_starting = None, False

    def start(self):
        os.makedirs(self.options.directory, exist_ok=True)
        if self.options.stacks != "none":
            # PyTorch imports it with its first snapshot that has stacks. On another thread that would meet the program's own
            # imports half way, and one of the two would fail.
            guarded(importlib.import_module, "torch._inductor.codecache")
        self.record()
        self.torch._C._cuda_attach_out_of_memory_observer(self.out_of_memory)
        self.call_at_exit()
        self.call_before_exit()
        self.listen_to_signal()
        if not self.options.on_oom:
            self.follower = threading.Thread(target=self.follow, name="granule-record", daemon=True)
            self.follower.start()

    def record(self):
        stacks = {"context": None} if self.options.stacks == "none" else {"stacks": self.options.stacks}
        self.is_starting = True
        self.torch.cuda.memory._record_memory_history(max_entries=self.entries, **stacks)
        self.is_starting = False

    # When a snapshot is due.

    def out_of_memory(self, device, asked, total, free):
        """Called before the program sees its OutOfMemoryError, with no lock of the allocator held."""
        if self.last_failure is not None and time.monotonic() - self.last_failure < BETWEEN_FAILURES:
            self.failures_left_out += 1
            return
        path = self.write(f"d{device}-oom", {"device": device, "asked": asked, "total": total, "free": free})
        self.last_failure = time.monotonic()
        if path:
            say(f"out of memory on device {device}: see {path}")

    def call_at_exit(self):
        multiprocessing = sys.modules.get("multiprocessing")
        if multiprocessing and multiprocessing.parent_process() is not None:
            # Children of a fork end without atexit.
            from multiprocessing.util import Finalize

            Finalize(None, self.end, exitpriority=-100)
        atexit.register(self.end)

    def call_before_exit(self):
        """`os._exit` leaves out what is registered."""
        leave = os._exit

        def leave_with_files(status):
            guarded(self.end)
            leave(status)

        os._exit = leave_with_files

    def listen_to_signal(self):
        main = threading.current_thread() is threading.main_thread()
        if main and signal.getsignal(signal.SIGUSR1) == signal.SIG_DFL:
            signal.signal(signal.SIGUSR1, lambda *_: self.write("signal"))

    def follow(self):
        """Writes a snapshot each time before the ring loses what no file has, and now and then what there is so far, for the
        case that the process ends otherwise than by its own end."""
        due = self.entries * DUE if self.options.rotate else math.inf
        written = last = kept = 0
        then, wait, next_so_far = time.monotonic(), MOST_WAIT, 0.0
        while not self.over.wait(wait):
            before = time.monotonic()
            made = guarded(self.entries_made)
            if made is None:
                return
            now = time.monotonic()
            # Where statistics were reset, what is counted began anew.
            if made < last:
                written = last = kept = 0
            rate = (made - last) / (now - then)
            if made - written >= due:
                self.write("", {"entries_lost": max(0, made - written - self.entries)})
                written = kept = made
            elif made != kept and now >= next_so_far:
                self.write(SO_FAR, {"ended": False})
                # The first takes PyTorch seconds that no other one takes.
                took = time.monotonic() - now if kept else 0.0
                next_so_far = now + max(BETWEEN_SO_FAR, SHARE_SO_FAR * took)
                kept = made
            # Several times before the next is due, but looking takes a hundredth of the time at most.
            left = (due - (made - written)) / (4 * rate) if rate else MOST_WAIT
            wait = max(min(left, MOST_WAIT), 100 * (now - before))
            last, then = made, now

    def entries_made(self):
        """What the busiest device's ring was given in all: one entry for a request, two for a free, some for segments."""
        most = 0
        for device in range(self.torch.cuda.device_count()):
            figures = self.torch._C._cuda_memoryStats(device)
            blocks, segments = figures["allocation"]["all"], figures["num_device_alloc"] + figures["num_device_free"]
            most = max(most, blocks["allocated"] + 2 * blocks["freed"] + segments)
        return most

    # Files.

    def write(self, why="", about=None):
        """Writes a snapshot; the path, or nothing where that failed."""
        return guarded(self._write, why, about or {})

    def _write(self, why, about):
        if os.getpid() != self.process or self.is_over:
            return None
        thread = threading.get_ident()
        if thread in self.writers:
            return None  # A signal came while this thread was writing one, or was about to.
        self.writers.add(thread)
        try:
            if not self.writing.acquire(timeout=MOST_PATIENCE):
                warn(f"another snapshot has been written for {MOST_PATIENCE} s: this one is left out")
                return None
            try:
                if why == SO_FAR and self.over.is_set():
                    return None  # The last file is written, or about to be.
                return self._write_alone(why, about)
            finally:
                self.writing.release()
        finally:
            self.writers.discard(thread)

    def _write_alone(self, why, about):
        began = time.monotonic()
        if why != SO_FAR:
            self.number += 1
        path = os.path.join(self.options.directory, self._name(why))
        snapshot = self.torch.cuda.memory._snapshot()
        snapshot["recording"] = {"number": self.number, "max_entries": self.entries, **about}
        unfinished = f"{path}.unfinished"
        try:
            remove(unfinished)
            # Not through a link that another user has put there.
            with open(unfinished, "xb") as file:
                pickle.dump(snapshot, file, protocol=4)
            os.replace(unfinished, path)
        except BaseException:
            remove(unfinished)
            raise
        if why != SO_FAR:
            # It has what was kept so far.
            remove(os.path.join(self.options.directory, self._name(SO_FAR)))
            kind = self.files[why.endswith("oom")]
            kind.append(path)
            while 0 < self.options.keep < len(kind):
                remove(kind.pop(0))
        self.stood_still += time.monotonic() - began
        return path

    def _name(self, why):
        rank = os.environ.get("RANK", "")
        number = "" if why == SO_FAR else f"{self.number:04}"
        parts = ["granule", f"r{rank}" if rank.isdigit() else "", f"p{self.process}", number, why]
        return "-".join(filter(None, parts)) + ".pickle"

    def end(self):
        """The program is over."""
        if self.over.is_set() or os.getpid() != self.process:
            return
        self.over.set()
        if not self.options.on_oom:
            self.write()
        self.is_over = True
        # A thread that is inside PyTorch when the interpreter goes would end the process with an abort.
        if self.follower is not None and self.follower is not threading.current_thread():
            self.follower.join(MOST_PATIENCE)
        if self.failures_left_out:
            say(f"{self.failures_left_out} more failures, each within {BETWEEN_FAILURES} s of one before, have no file")
        if self.stood_still > 1:
            say(f"the program stood still for {self.stood_still:.1f} s in all while snapshots were written ({self.number})")
        files = self.files[True] + self.files[False]
        if files and "GRANULE_RECORD_COMMAND" not in os.environ:
            say(f"recorded {', '.join(files)}; next: granule inspect {files[0]}")


def remove(path):
    if os.path.exists(path):
        os.remove(path)
