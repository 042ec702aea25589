"""Networks whose optimum is known, as capacity graphs; capacities in whole units."""

from topotune.bounds import CapacityGraph

# Lanes between GPUs, "a-b:lanes", both ways.
DGX1V = """
0-1:2 0-2:1 0-3:1 0-4:2 1-2:1 1-3:2 1-5:1 2-3:2 2-6:2 3-7:1 4-5:2 4-6:1 4-7:1 5-6:1 5-7:2 6-7:2
"""
MI250 = """
0-1:4 0-4:2 0-8:1 1-5:1 1-9:1 1-10:1 2-3:4 2-6:1 2-9:1 2-10:1 3-7:2 3-11:1 4-5:4 4-6:1 5-6:1 5-7:1 6-7:4
8-9:4 8-12:2 9-13:1 10-11:4 10-14:1 11-15:2 12-13:4 12-14:1 13-14:1 13-15:1 14-15:4
"""


def _lanes(text):
    for link in text.split():
        ends, lanes = link.split(":")
        a, b = ends.split("-")
        yield int(a), int(b), int(lanes)


class Net:
    """Collects links of both directions."""

    def __init__(self):
        self.capacities = {}
        self.compute = []

    def join(self, a, b, capacity):
        for arc in ((a, b), (b, a)):
            self.capacities[arc] = self.capacities.get(arc, 0) + capacity

    def graph(self, **facts):
        return CapacityGraph(capacities=self.capacities, compute=tuple(self.compute), **facts)


def star(rates):
    """Hosts on one switch."""
    net = Net()
    for host, rate in enumerate(rates):
        net.compute.append(f"h{host}")
        net.join(f"h{host}", "switch", rate)
    return net.graph()


def switched_boxes(num_boxes, gpus, gpu_rate, nic_rate, *, rails=1, gpus_per_nic=1, to_nic=None):
    """GPUs on one switch a box; NICs of ``gpus_per_nic`` GPUs each on ``rails`` fabric switches."""
    net = Net()
    for box in range(num_boxes):
        for gpu in range(gpus):
            name = f"b{box}g{gpu}"
            net.compute.append(name)
            net.join(name, f"b{box}nvs", gpu_rate)
            if num_boxes > 1 and gpus_per_nic == 1:
                net.join(name, f"rail{gpu % rails}", nic_rate)
            elif num_boxes > 1:
                nic = f"b{box}nic{gpu // gpus_per_nic}"
                net.join(name, nic, to_nic or nic_rate)
                if gpu % gpus_per_nic == 0:
                    net.join(nic, f"rail{gpu // gpus_per_nic % rails}", nic_rate)
    return net.graph()


def meshed_boxes(lanes, unit, *, num_boxes=1, subset=None, nic_rate=0, gpus_per_nic=1):
    """Directly linked GPUs; each also on one fabric switch, or so many on a NIC, if boxes are several."""
    net = Net()
    links = list(_lanes(lanes))
    gpus = sorted({gpu for a, b, _ in links for gpu in (a, b)} & (subset or set(range(64))))
    for box in range(num_boxes):
        for gpu in gpus:
            net.compute.append(f"b{box}g{gpu}")
            if num_boxes > 1 and gpus_per_nic == 1:
                net.join(f"b{box}g{gpu}", "ib", nic_rate)
            elif num_boxes > 1:
                nic = f"b{box}nic{gpu // gpus_per_nic}"
                net.join(f"b{box}g{gpu}", nic, nic_rate)
                if gpu % gpus_per_nic == 0:
                    net.join(nic, "ib", nic_rate)
        for a, b, width in links:
            if a in gpus and b in gpus:
                net.join(f"b{box}g{a}", f"b{box}g{b}", unit * width)
    return net.graph()


def grid(rows, columns, rate, *, wrap=False):
    """A 2-D mesh or torus."""
    net = Net()
    for row in range(rows):
        for column in range(columns):
            net.compute.append(f"{row},{column}")
            for r, c in ((row + 1, column), (row, column + 1)):
                if wrap or (r < rows and c < columns):
                    net.join(f"{row},{column}", f"{r % rows},{c % columns}", rate)
    return net.graph()


def racks(num_racks, hosts_per_rack, host_rate, uplink_rate):
    """Hosts on a switch a rack, racks on a spine."""
    net = Net()
    for rack in range(num_racks):
        net.join(f"rack{rack}", "spine", uplink_rate)
        for host in range(hosts_per_rack):
            net.compute.append(f"r{rack}h{host}")
            net.join(f"r{rack}h{host}", f"rack{rack}", host_rate)
    return net.graph()


def unlike_racks(rates, uplink_rate):
    """Hosts of these rates on a switch a rack, racks on a spine."""
    net = Net()
    for rack, hosts in enumerate(rates):
        net.join(f"rack{rack}", "spine", uplink_rate)
        for host, rate in enumerate(hosts):
            net.compute.append(f"r{rack}h{host}")
            net.join(f"r{rack}h{host}", f"rack{rack}", rate)
    return net.graph()


def unlike_boxes(rates, gpus, gpu_rate):
    """Boxes of GPUs on one switch, each with NICs of these rates on a fabric switch a rail."""
    net = Net()
    for box, nics in enumerate(rates):
        for gpu in range(gpus):
            net.compute.append(f"b{box}g{gpu}")
            net.join(f"b{box}g{gpu}", f"b{box}nvs", gpu_rate)
        for rail, rate in enumerate(nics):
            net.join(f"b{box}nvs", f"b{box}nic{rail}", rate)
            net.join(f"b{box}nic{rail}", f"rail{rail}", rate)
    return net.graph()


def full_mesh(gpus, rate):
    """Every GPU linked to every other."""
    net = Net()
    net.compute = [f"g{gpu}" for gpu in range(gpus)]
    for a in range(gpus):
        for b in range(a):
            net.join(f"g{a}", f"g{b}", rate)
    return net.graph()


def dgx2_of_te_ccl():
    """Two boxes of 16 GPUs on a switch; every odd GPU sends to the even one of its pair in the other box."""
    net = Net()
    for box in range(2):
        for gpu in range(16):
            net.compute.append(f"b{box}g{gpu}")
            net.join(f"b{box}g{gpu}", f"b{box}nvs", 250)
            if gpu % 2:
                net.capacities[f"b{box}g{gpu}", f"b{1 - box}g{gpu - 1}"] = 25
    return net.graph()


def pcie_box():
    """Eight GPUs, two below each of four PCI switches, two of these on each of two sockets."""
    net = Net()
    for gpu in range(8):
        net.compute.append(f"g{gpu}")
        net.join(f"g{gpu}", f"plx{gpu // 2}", 12)
    for switch in range(4):
        net.join(f"plx{switch}", f"socket{switch // 2}", 12)
    net.join("socket0", "socket1", 10)
    return net.graph()


def ndv2(num_boxes):
    """DGX-1V boxes; GPU 1 sends and GPU 0 receives over the only 12.5 GB/s network link; unit 0.5 GB/s."""
    net = Net()
    for box in range(num_boxes):
        net.compute += [f"b{box}g{gpu}" for gpu in range(8)]
        for a, b, width in _lanes(DGX1V):
            net.join(f"b{box}g{a}", f"b{box}g{b}", 50 * width)
    if num_boxes == 2:
        net.capacities["b0g1", "b1g0"] = net.capacities["b1g1", "b0g0"] = 25
    else:
        for box in range(num_boxes):
            net.capacities[f"b{box}g1", "ib"] = net.capacities["ib", f"b{box}g0"] = 25
    return net.graph()
