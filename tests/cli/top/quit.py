#!/usr/bin/env python3
"""quit.py LOG WEFT ARGUMENT...: runs the command in a terminal, presses q when LOG is not empty, and
prints the exit status; waits for conditions, each for at most two minutes."""
import os
import pty
import select
import sys
import time

log, command = sys.argv[1], sys.argv[2:]
pid, fd = pty.fork()
if pid == 0:
    os.environ.update(TERM="xterm", LANG="C")
    os.execv(command[0], command)
until = time.monotonic() + 120
pressed = False
while time.monotonic() < until:
    if not pressed and os.path.exists(log) and os.path.getsize(log) > 0:
        os.write(fd, b"q")
        pressed = True
    if select.select([fd], [], [], 0.05)[0]:
        try:
            if not os.read(fd, 65536):
                break
        except OSError:
            break
print("exit", os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
