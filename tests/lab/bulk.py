"""One end of a bulk transfer over a plain socket, for the tests of the links' rates.

    bulk.py receive PORT NUM_BYTES          prints "ready", then when the last byte came
    bulk.py send ADDRESS PORT NUM_BYTES     prints "connected", reads when to start, prints when it started

Times are of CLOCK_MONOTONIC, which all nodes of a lab share.
"""

import socket
import sys
import time


def receive(port: int, num_bytes: int) -> None:
    with socket.create_server(("", port)) as server:
        print("ready", flush=True)
        connection, _ = server.accept()
        with connection:
            buffer = bytearray(2**18)
            while num_bytes > 0:
                count = connection.recv_into(buffer)
                assert count > 0, "the sender ended early"
                num_bytes -= count
        print(time.monotonic(), flush=True)


def send(address: str, port: int, num_bytes: int) -> None:
    data = bytes(num_bytes)
    with socket.create_connection((address, port)) as connection:
        print("connected", flush=True)
        start_s = float(sys.stdin.readline())
        time.sleep(max(0.0, start_s - time.monotonic()))
        print(time.monotonic(), flush=True)
        connection.sendall(data)


if __name__ == "__main__":
    mode, *arguments = sys.argv[1:]
    if mode == "receive":
        receive(int(arguments[0]), int(arguments[1]))
    else:
        send(arguments[0], int(arguments[1]), int(arguments[2]))
