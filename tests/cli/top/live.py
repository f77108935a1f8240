#!/usr/bin/env python3
"""live.py WEFT TARGET: runs `weft top` in a terminal of 80 x 24, then of 100 x 40, presses q. Prints the
screen and the exit status; waits for conditions, each for at most two minutes."""
import fcntl
import os
import pty
import select
import signal
import struct
import sys
import termios
import time


def size(fd, rows, columns):
    fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))


def wait_for(fd, text, nudge):
    """ncurses handles SIGWINCH only while it waits for a key: repeat the signal until it does."""
    seen, until = b"", time.monotonic() + 120
    while text not in seen:
        if not select.select([fd], [], [], 0.5)[0]:
            if time.monotonic() > until:
                sys.exit("not seen: %r in %r" % (text, seen))
            nudge()
            continue
        try:
            seen += os.read(fd, 65536)
        except OSError:
            sys.exit("it ended: %r" % seen)


pid, fd = pty.fork()
if pid == 0:
    os.environ.update(TERM="xterm", LANG="C")
    os.execv(sys.argv[1], [sys.argv[1], "top", "--interval-ms", "3600000", sys.argv[2]])
size(fd, 24, 80)
wait_for(fd, b"q quit", lambda: None)
print("shown")
size(fd, 40, 100)
wait_for(fd, b"q quit", lambda: os.kill(pid, signal.SIGWINCH))
print("shown again in another size")
os.write(fd, b"q")
until = time.monotonic() + 120
while True:
    try:
        if not os.read(fd, 65536):
            break
    except OSError:
        break
print("exit", os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
