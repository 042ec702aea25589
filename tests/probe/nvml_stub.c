/* A driver's management library with two GPUs, for the tests: libnvidia-ml.so.1 by its binary interface.
 *
 * GPU 0 is joined to GPU 1 by NVLinks 0 and 1 and to an NVSwitch by link 2; its link 3 is down. Function
 * names, argument types and structures are those of nvml.h. BROKEN_DRIVER makes initialisation fail as after
 * an update of the driver without a reboot; OLD_DRIVER leaves out what drivers before 535 do not have.
 */
#include <stdint.h>
#include <string.h>

enum { SUCCESS = 0, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, LIB_RM_VERSION_MISMATCH = 18 };

typedef struct { int index; } *device;
typedef struct {
    char bus_id_legacy[16];
    unsigned domain, bus, device, pci_device_id, pci_subsystem_id;
    char bus_id[32];
} pci_info;
typedef struct { unsigned long long total, free, used; } memory_info;
typedef struct {
    unsigned field_id, scope_id;
    int64_t timestamp, latency_us;
    int value_type, status;
    union { double d; unsigned u; unsigned long long ull; } value;
} field_value;

static struct { int index; } gpus[2] = {{0}, {1}};
static const char *addresses[] = {"00000000:13:00.0", "00000000:14:00.0", "00000000:C1:00.0"};

static int text(char *to, unsigned length, const char *from) {
    if (strlen(from) >= length) return 7;
    strcpy(to, from);
    return SUCCESS;
}
static int address(pci_info *to, const char *from) {
    memset(to, 0, sizeof *to);
    strcpy(to->bus_id, from);
    return SUCCESS;
}
static int number(unsigned *to, unsigned value) { *to = value; return SUCCESS; }

#ifdef BROKEN_DRIVER
int nvmlInitWithFlags(unsigned flags) { (void)flags; return LIB_RM_VERSION_MISMATCH; }
#else
int nvmlInitWithFlags(unsigned flags) { return flags == 0 ? SUCCESS : INVALID_ARGUMENT; }
#endif
int nvmlShutdown(void) { return SUCCESS; }
const char *nvmlErrorString(int code) {
    return code == LIB_RM_VERSION_MISMATCH ? "Driver/library version mismatch" : "an error of the stub";
}
int nvmlSystemGetDriverVersion(char *to, unsigned length) { return text(to, length, "570.86.15"); }
int nvmlSystemGetCudaDriverVersion(int *to) { *to = 12080; return SUCCESS; }
int nvmlDeviceGetCount_v2(unsigned *to) { return number(to, 2); }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, device *to) {
    if (index > 1) return INVALID_ARGUMENT;
    *to = (device)&gpus[index];
    return SUCCESS;
}
int nvmlDeviceGetPciInfo_v3(device gpu, pci_info *to) { return address(to, addresses[gpu->index]); }
int nvmlDeviceGetUUID(device gpu, char *to, unsigned length) {
    return text(to, length, gpu->index ? "GPU-00000001-aaaa" : "GPU-00000000-aaaa");
}
int nvmlDeviceGetName(device gpu, char *to, unsigned length) {
    (void)gpu;
    return text(to, length, "NVIDIA H100 80GB HBM3");
}
int nvmlDeviceGetMemoryInfo(device gpu, memory_info *to) {
    (void)gpu;
    to->total = 80ULL << 30;
    to->free = to->used = 0;
    return SUCCESS;
}
int nvmlDeviceGetCurrPcieLinkGeneration(device gpu, unsigned *to) { (void)gpu; return number(to, 1); }
int nvmlDeviceGetMaxPcieLinkGeneration(device gpu, unsigned *to) { (void)gpu; return number(to, 5); }
int nvmlDeviceGetCurrPcieLinkWidth(device gpu, unsigned *to) { return number(to, gpu->index ? 8 : 16); }
int nvmlDeviceGetMaxPcieLinkWidth(device gpu, unsigned *to) { (void)gpu; return number(to, 16); }
int nvmlDeviceGetMemoryAffinity(device gpu, unsigned words, unsigned long *to, unsigned scope) {
    if (scope != 0 || words == 0) return INVALID_ARGUMENT;
    memset(to, 0, words * sizeof *to);
    to[0] = gpu->index ? 3 : 1;
    return SUCCESS;
}
int nvmlDeviceGetCpuAffinity(device gpu, unsigned words, unsigned long *to) {
    memset(to, 0, words * sizeof *to);
    to[0] = gpu->index ? 0x0c : 0x03;
    to[1] = gpu->index ? 0 : 1;
    return SUCCESS;
}
int nvmlDeviceGetMigMode(device gpu, unsigned *now, unsigned *pending) {
    *now = gpu->index;
    *pending = 0;
    return SUCCESS;
}
int nvmlDeviceGetPerformanceState(device gpu, unsigned *to) { return number(to, gpu->index ? 32 : 8); }
int nvmlDeviceGetEnforcedPowerLimit(device gpu, unsigned *to) { return number(to, gpu->index ? 500000 : 700000); }
int nvmlDeviceGetPowerManagementDefaultLimit(device gpu, unsigned *to) { (void)gpu; return number(to, 700000); }
int nvmlDeviceGetClockInfo(device gpu, int type, unsigned *to) {
    (void)gpu;
    return type == 1 ? number(to, 345) : INVALID_ARGUMENT;
}
int nvmlDeviceGetMaxClockInfo(device gpu, int type, unsigned *to) {
    (void)gpu;
    return type == 1 ? number(to, 1980) : INVALID_ARGUMENT;
}
static int reasons(device gpu, unsigned long long *to) {
    *to = gpu->index ? 0x1 | 0x4 | 0x40 : 0x1; /* at rest; the second also at its power and heat limits */
    return SUCCESS;
}
#ifdef OLD_DRIVER
int nvmlDeviceGetCurrentClocksThrottleReasons(device gpu, unsigned long long *to) { return reasons(gpu, to); }
#else
int nvmlDeviceGetCurrentClocksEventReasons(device gpu, unsigned long long *to) { return reasons(gpu, to); }
#endif
int nvmlDeviceGetNvLinkState(device gpu, unsigned link, unsigned *to) {
    if (link > (gpu->index ? 1u : 3u)) return INVALID_ARGUMENT;
    return number(to, link < 3);
}
int nvmlDeviceGetNvLinkRemoteDeviceType(device gpu, unsigned link, unsigned *to) {
    (void)gpu;
    return number(to, link < 2 ? 0 : 2);
}
int nvmlDeviceGetNvLinkRemotePciInfo_v2(device gpu, unsigned link, pci_info *to) {
    return address(to, addresses[link < 2 ? !gpu->index : 2]);
}
int nvmlDeviceGetNvLinkVersion(device gpu, unsigned link, unsigned *to) {
    (void)gpu, (void)link;
    return number(to, 6);
}
int nvmlDeviceGetNvLinkErrorCounter(device gpu, unsigned link, int counter, unsigned long long *to) {
    if (counter > 3) return INVALID_ARGUMENT;
    *to = gpu->index || link ? 0 : (unsigned long long)counter * (1ULL << 33); /* more than 32 bits hold */
    return SUCCESS;
}
int nvmlDeviceGetFieldValues(device gpu, int count, field_value *values) {
    (void)gpu;
    for (int at = 0; at < count; at++) {
        values[at].status = values[at].field_id == 164 ? SUCCESS : NOT_SUPPORTED;
        values[at].value.u = 26562;
    }
    return SUCCESS;
}
int nvmlDeviceGetP2PStatus(device one, device other, int capability, int *to) {
    if (one == other || capability > 3) return INVALID_ARGUMENT;
    /* Atomics work one way alone. */
    *to = capability == 3 && one->index ? 5 : 0;
    return SUCCESS;
}
