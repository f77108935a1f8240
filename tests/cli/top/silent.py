#!/usr/bin/env python3
"""silent.py PORT_FILE LOG: a server that accepts connections and never replies; writes its port, and
a line per connection. SIGTERM ends it."""
import socket
import sys

server = socket.create_server(("0.0.0.0", 0), backlog=128)
with open(sys.argv[1], "w") as out:
    out.write("%d\n" % server.getsockname()[1])
kept = []
while True:
    kept.append(server.accept()[0])
    with open(sys.argv[2], "a") as log:
        log.write("connected\n")
