#!/usr/bin/env python3
"""An incast over kernel TCP without weft's code, to check that `weft perf incast --transport
tcp-raw` does not measure a misconfigured TCP.

    weft lab up NAME --hosts 9 ...
    bench/lab/incast_check.py NAME [--weft build/weft] [--cc cubic] [--rto-min 5] [--rounds 200]
                              [--senders 8] [--bytes 250000] [--gap 5]

Blocking sockets in the senders, one process each. The receiver starts a round with one byte on
every connection and stops the clock when it has all bytes of all senders, then pauses for --gap ms.
A TCP that was idle for longer than its timeout restarts with its initial window, so compare equal
pauses (weft perf pauses for --gap plus the milliseconds in which it checks contents). Prints p50,
p99 and mean in ms.
"""
import argparse
import json
import selectors
import socket
import subprocess
import sys
import time

PORT = 7790
TCP_CONGESTION = 13


def receive(args):
    listener = socket.create_server(("", PORT), backlog=args.senders)
    print("listening", flush=True)
    ready = selectors.DefaultSelector()
    peers = []
    for _ in range(args.senders):
        peer, _ = listener.accept()
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        peers.append(peer)
    for peer in peers:
        peer.setblocking(False)
        ready.register(peer, selectors.EVENT_READ)
    buffer = bytearray(1 << 18)
    rounds_ms = []
    for i in range(args.rounds + args.warmup):
        time.sleep(args.gap / 1e3)
        left = {peer: args.bytes for peer in peers}
        begin = time.monotonic()
        for peer in peers:
            peer.send(b"g")
        while left:
            for key, _ in ready.select():
                peer = key.fileobj
                left[peer] -= peer.recv_into(buffer, min(left[peer], len(buffer)))
                if left[peer] == 0:
                    del left[peer]
        if i >= args.warmup:
            rounds_ms.append((time.monotonic() - begin) * 1e3)
    for peer in peers:
        peer.close()
    rounds_ms.sort()
    at = lambda q: rounds_ms[max(0, -(-len(rounds_ms) * q // 100) - 1)]
    print(json.dumps({"p50": at(50), "p99": at(99), "mean": sum(rounds_ms) / len(rounds_ms)}))


def send(args):
    peer = socket.socket()
    peer.setsockopt(socket.IPPROTO_TCP, TCP_CONGESTION, args.cc.encode())
    peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    peer.connect((args.to, PORT))
    data = bytes(args.bytes)
    while peer.recv(1):
        peer.sendall(data)


def route(args, on, host):
    """Set the route of the host with the requested timeout, or without one."""
    shown = subprocess.run([args.weft, "lab", "exec", args.lab, str(host), "--", "ip", "route",
                            "show", "10.77.0.0/16"], capture_output=True, text=True, check=True)
    words = shown.stdout.split()
    if "rto_min" in words:
        words = words[:words.index("rto_min")]
    if args.rto_min:
        words += ["rto_min", f"{args.rto_min}ms"]
    if on(host, "ip", "route", "change", *words).wait() != 0:
        sys.exit(f"incast_check: cannot change the route of host {host}")


def run(args):
    def on(host, *words, **more):
        return subprocess.Popen([args.weft, "lab", "exec", args.lab, str(host), "--", *words],
                                text=True, **more)

    me = [sys.executable, sys.argv[0], args.lab, "--senders", str(args.senders), "--bytes",
          str(args.bytes), "--rounds", str(args.rounds), "--gap", str(args.gap), "--cc", args.cc]
    for host in range(args.senders + 1):
        route(args, on, host)
    receiver = on(0, *me, "--part", "receive", stdout=subprocess.PIPE)
    if receiver.stdout.readline() != "listening\n":
        sys.exit("incast_check: the receiver did not start")
    senders = [on(h + 1, *me, "--part", "send", "--to", "10.77.0.1") for h in range(args.senders)]
    result = receiver.stdout.readline()
    print(result, end="")
    for process in [receiver, *senders]:
        process.wait()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("lab")
    parser.add_argument("--weft", default="build/weft")
    parser.add_argument("--senders", type=int, default=8)
    parser.add_argument("--bytes", type=int, default=250000)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--warmup", type=int, default=5)
    parser.add_argument("--gap", type=float, default=5, help="ms of rest between rounds")
    parser.add_argument("--cc", default="cubic")
    parser.add_argument("--rto-min", type=int, default=0, help="ms; 0 = the kernel's")
    parser.add_argument("--part", choices=["receive", "send"], help=argparse.SUPPRESS)
    parser.add_argument("--to", help=argparse.SUPPRESS)
    args = parser.parse_args()
    {"receive": receive, "send": send, None: run}[args.part](args)


if __name__ == "__main__":
    main()
