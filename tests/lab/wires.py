"""More wires for a lab node, laid from inside it: run in the node, with the verbs below.

wires.py docker                          docker0 as a container host has it: up, and it leads nowhere
wires.py wire NAME PID                   NAME, whose other end, of the same name, is in the node of PID
wires.py address NAME ADDRESS BIT_RATE   an address, a rate, and up
wires.py route ADDRESS NAME              to an address that its own prefix does not lead to
"""

import sys

from pyroute2 import IPRoute


def main(verb: str, *words: str) -> None:
    with IPRoute() as route:

        def index(name: str) -> int:
            return route.link_lookup(ifname=name)[0]

        match verb, words:
            case "docker", ():
                route.link("add", kind="bridge", ifname="docker0")
                route.link("add", kind="veth", ifname="vethc0", peer={"ifname": "vethc1"})
                route.link("set", index=index("vethc0"), master=index("docker0"), state="up")
                for name in ("vethc1", "docker0"):
                    route.link("set", index=index(name), state="up")
                route.addr("add", index=index("docker0"), address="172.17.0.1", prefixlen=16)
            case "wire", (name, pid):
                route.link("add", kind="veth", ifname=name, peer={"ifname": name, "net_ns_pid": int(pid)})
            case "address", (name, address, bit_rate):
                end = index(name)
                route.tc("add", "tbf", index=end, handle="1:", rate=int(bit_rate) // 8, burst=32768,
                         limit=2**25)  # fmt: skip
                route.addr("add", index=end, address=address, prefixlen=24)
                route.link("set", index=end, state="up")
            case "route", (address, name):
                route.route("add", dst=f"{address}/32", oif=index(name))


if __name__ == "__main__":
    main(*sys.argv[1:])
