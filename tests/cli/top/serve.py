#!/usr/bin/env python3
"""serve.py FILE TARGETS PORT_FILE: replies like a weft process: /metrics from FILE, three hot
rows, and /targets from TARGETS; writes its port. SIGTERM ends it."""
import http.server
import json
import sys

HOT = {"updates": 1000, "rows": [{"id": str(n), "updates": u, "shard": 0}
                                 for n, u in ((18446744073709551615, 500), ("7\x1b[2J", 250), (9, 1))]}


class Answer(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        path = self.path.split("?")[0]
        if path == "/metrics":
            body = open(sys.argv[1]).read()
        elif path == "/hot":
            body = json.dumps(HOT)
        else:
            body = open(sys.argv[2]).read()
        self.send_response(200)
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, *_):
        pass


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answer)
with open(sys.argv[3], "w") as out:
    out.write("%d\n" % server.server_port)
server.serve_forever()
