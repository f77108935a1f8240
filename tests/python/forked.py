"""Runs Python programs in processes forked from one that has already imported PyTorch (an import needs seconds).

    forked.py SOCKET                               the server: imports PyTorch, and serves until it is killed
    forked.py SOCKET SCRIPT|-m MODULE [ARGUMENT]   has the server run the program, and exits with its status

The program has the caller's directory, environment, standard input, output and error. It runs as __main__, and its
process exits as that of `python SCRIPT` would. Variables that affect imports (OMP_NUM_THREADS) must be set for the
server. Programs that are called at the same time run at the same time.
"""

import contextlib
import os
import runpy
import socket
import sys


def call(path, words):
    """-> exit status of the program"""
    with socket.socket(socket.AF_UNIX) as server:
        server.connect(path)
        said = [os.getcwd(), str(len(words)), *words, *(f"{name}={value}" for name, value in os.environ.items())]
        message = "\0".join(said).encode(errors="surrogateescape")
        socket.send_fds(server, [len(message).to_bytes(8, "little")], [0, 1, 2])
        server.sendall(message)
        status = server.recv(1)
    return status[0] if status else 1


def received(client):
    head, files, _, _ = socket.recv_fds(client, 8, 3)
    size, message = int.from_bytes(head, "little"), b""
    while len(message) < size:
        message += client.recv(size - len(message))
    folder, count, *rest = message.decode(errors="surrogateescape").split("\0")
    words, environment = rest[: int(count)], rest[int(count) :]
    return files, folder, words, dict(pair.split("=", 1) for pair in environment)


def serve(path):
    """Returns in each forked process. -> arguments of its program"""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen()
    while True:
        client, _ = listener.accept()
        if os.fork() == 0:
            listener.close()
            files, folder, words, environment = received(client)
            child = os.fork()
            if child == 0:
                client.close()
                for number, file in enumerate(files):
                    os.dup2(file, number)
                    os.close(file)
                os.chdir(folder)
                os.environ.clear()
                os.environ.update(environment)
                return words
            status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            client.sendall(bytes([status if status >= 0 else 128 - status]))
            os._exit(0)
        client.close()
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG) != (0, 0):  # processes whose programs have ended
                pass


def run(words):
    if words[0] == "-m":
        sys.argv = words[1:]
        sys.path[0] = os.getcwd()
        runpy.run_module(words[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv = words
        sys.path[0] = os.path.dirname(os.path.abspath(words[0]))
        runpy.run_path(words[0], run_name="__main__")


if len(sys.argv) > 2:
    sys.exit(call(sys.argv[1], sys.argv[2:]))
else:
    import cffi  # noqa: F401
    import numpy  # noqa: F401
    import torch.distributed.launcher.api  # noqa: F401  what torch.distributed.run imports
    import torch.nn.parallel  # noqa: F401

    torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)  # creating the first optimizer imports as much again
    run(serve(sys.argv[1]))
