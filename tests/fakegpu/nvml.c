/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The stand-in NVML over the same world ("NVML API Reference Guide"): devices, memory,
 * NVLink state and remote ends, PCIe link. A device's handle is its ordinal plus one.
 *
 * FAKEGPU_NVML has it answer as odd GPUs and old drivers do: words "GPU:CALL=ERROR", as
 * "0:nvmlDeviceGetMemoryInfo=3" (a GB10 says "Not Supported"), "1:nvmlDeviceGetMigMode=13" (a
 * driver without that call); besides, "0:mig=1", "0:node=1" and "0:total=0".
 */
#include "driver.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
	NVML_SUCCESS = 0,
	NVML_ERROR_INVALID_ARGUMENT = 2,
	NVML_ERROR_NOT_SUPPORTED = 3,
	NVML_ERROR_INSUFFICIENT_SIZE = 7,
	NVML_ERROR_GPU_IS_LOST = 15,
	NVML_ERROR_UNKNOWN = 999,
};

enum { NVLINK_DEVICE_GPU = 0, NVLINK_DEVICE_SWITCH = 2 };

typedef struct {
	char bus_id_legacy[16];
	unsigned int domain, bus, device, pci_device_id, pci_subsystem_id;
	char bus_id[32];
} nvmlPciInfo_t;

typedef struct {
	unsigned long long total, free, used;
} nvmlMemory_t;

#define BUS_OF(gpu) (0x10u + (unsigned int)(gpu))

/* What FAKEGPU_NVML says of a GPU's `name`, else `otherwise`. */
static int told(int gpu, const char *name, int otherwise)
{
	const char *word = getenv("FAKEGPU_NVML");
	char wanted[64];
	size_t length = (size_t)snprintf(wanted, sizeof(wanted), "%d:%s=", gpu, name);

	for (; word && *word; word += strcspn(word, " "), word += strspn(word, " "))
		if (!strncmp(word, wanted, length))
			return atoi(word + length);
	return otherwise;
}

static int device_of(const char *call, const void *handle, int *gpu)
{
	*gpu = (int)(uintptr_t)handle - 1;
	if (!fg_w || *gpu < 0 || *gpu >= fg_w->gpus)
		return NVML_ERROR_INVALID_ARGUMENT;
	return told(*gpu, call, fg_w->gpu[*gpu].lost ? NVML_ERROR_GPU_IS_LOST : NVML_SUCCESS);
}

/* The GPU at the other end of a link, or FG_NONE; a switch has all. Links go by peer number. */
static int remote_of(int gpu, unsigned int link)
{
	unsigned int next = 0;

	for (int peer = 0; peer < fg_w->gpus; peer++) {
		next += (unsigned int)fg_w->nvlinks[gpu][peer];
		if (link < next)
			return peer;
		if (fg_w->switched && fg_w->nvlinks[gpu][peer])
			break; /* the same links lead to all */
	}
	return FG_NONE;
}

FG_API int nvmlInitWithFlags(unsigned int flags)
{
	(void)flags;
	if (fg_lock())
		return NVML_ERROR_UNKNOWN;
	fg_unlock();
	return NVML_SUCCESS;
}

FG_API int nvmlInit_v2(void)
{
	return nvmlInitWithFlags(0);
}

FG_API int nvmlShutdown(void)
{
	return NVML_SUCCESS;
}

FG_API const char *nvmlErrorString(int error)
{
	return error ? "stand-in NVML error" : "success";
}

FG_API int nvmlSystemGetDriverVersion(char *text, unsigned int size)
{
	snprintf(text, size, "0.0-standin");
	return NVML_SUCCESS;
}

FG_API int nvmlDeviceGetCount_v2(unsigned int *count)
{
	*count = (unsigned int)fg_w->gpus;
	return NVML_SUCCESS;
}

FG_API int nvmlDeviceGetHandleByIndex_v2(unsigned int index, void **handle)
{
	int gpu;

	*handle = (void *)(uintptr_t)(index + 1);
	return device_of(__func__, *handle, &gpu);
}

FG_API int nvmlDeviceGetMemoryInfo(void *handle, nvmlMemory_t *memory)
{
	int gpu, ret = device_of(__func__, handle, &gpu);

	if (ret || fg_lock())
		return ret ? ret : NVML_ERROR_UNKNOWN;
	fg_reap();
	memory->total = (unsigned long long)fg_w->gpu[gpu].frames * FG_BLOCK_BYTES;
	memory->total *= told(gpu, "total", 1) ? 1 : 0;
	memory->free = (unsigned long long)fg_w->gpu[gpu].list[FG_ON_FREE].count * FG_BLOCK_BYTES;
	memory->used = memory->total - memory->free;
	fg_unlock();
	return NVML_SUCCESS;
}

typedef struct {
	unsigned int pid;
	unsigned long long used_bytes;
	unsigned int gpu_instance, compute_instance;
} nvmlProcessInfo_t;

/* Contexts and cuMemAlloc; managed memory is in no process's figure (measured). */
FG_API int nvmlDeviceGetComputeRunningProcesses_v3(void *handle, unsigned int *count,
						   nvmlProcessInfo_t *out)
{
	int gpu, ret = device_of(__func__, handle, &gpu);
	unsigned int found = 0;

	if (ret || fg_lock())
		return ret ? ret : NVML_ERROR_UNKNOWN;
	fg_reap();
	for (int slot = 0; slot < FG_MAX_TENANTS; slot++) {
		const struct fg_tenant *tenant = &fg_w->tenant[slot];

		if (!tenant->used || !tenant->contexts[gpu])
			continue;
		if (found < *count)
			out[found] = (nvmlProcessInfo_t){
			    .pid = (unsigned int)tenant->pid,
			    .used_bytes = (uint64_t)tenant->plain[gpu] * FG_BLOCK_BYTES,
			    .gpu_instance = UINT32_MAX,
			    .compute_instance = UINT32_MAX,
			};
		found++;
	}
	ret = found > *count ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS;
	*count = found;
	fg_unlock();
	return ret;
}

FG_API int nvmlDeviceGetUUID(void *handle, char *text, unsigned int size)
{
	int gpu, ret = device_of(__func__, handle, &gpu);

	snprintf(text, size, FG_UUID_FORMAT, (unsigned int)gpu);
	return ret;
}

FG_API int nvmlDeviceGetName(void *handle, char *text, unsigned int size)
{
	int gpu, ret = device_of(__func__, handle, &gpu);

	snprintf(text, size, "Stand-in %s", fg_w ? fg_w->name : "");
	return ret;
}

static void pci_info(int gpu, nvmlPciInfo_t *pci)
{
	memset(pci, 0, sizeof(*pci));
	pci->bus = BUS_OF(gpu);
	snprintf(pci->bus_id, sizeof(pci->bus_id), "00000000:%02X:00.0", pci->bus);
	snprintf(pci->bus_id_legacy, sizeof(pci->bus_id_legacy), "0000:%02X:00.0", pci->bus);
}

FG_API int nvmlDeviceGetPciInfo_v3(void *handle, nvmlPciInfo_t *pci)
{
	int gpu, ret = device_of(__func__, handle, &gpu);

	pci_info(gpu, pci);
	return ret;
}

FG_API int nvmlDeviceGetNvLinkState(void *handle, unsigned int link, unsigned int *active)
{
	int gpu, ret = device_of(__func__, handle, &gpu), peer;

	if (ret)
		return ret;
	peer = remote_of(gpu, link);
	if (peer == FG_NONE)
		return NVML_ERROR_INVALID_ARGUMENT;
	*active = fg_w->switched || !fg_w->lane[gpu * FG_MAX_GPUS + peer].down;
	return NVML_SUCCESS;
}

FG_API int nvmlDeviceGetNvLinkRemoteDeviceType(void *handle, unsigned int link, unsigned int *type)
{
	int gpu, ret = device_of(__func__, handle, &gpu);

	if (ret)
		return ret;
	*type = fg_w->switched ? NVLINK_DEVICE_SWITCH : NVLINK_DEVICE_GPU;
	return remote_of(gpu, link) == FG_NONE ? NVML_ERROR_INVALID_ARGUMENT : NVML_SUCCESS;
}

FG_API int nvmlDeviceGetNvLinkRemotePciInfo_v2(void *handle, unsigned int link, nvmlPciInfo_t *pci)
{
	int gpu, ret = device_of(__func__, handle, &gpu), peer;

	if (ret)
		return ret;
	peer = remote_of(gpu, link);
	if (peer == FG_NONE)
		return NVML_ERROR_INVALID_ARGUMENT;
	pci_info(fg_w->switched ? 0xd0 : peer, pci);
	return NVML_SUCCESS;
}

FG_API int nvmlDeviceGetNvLinkVersion(void *handle, unsigned int link, unsigned int *version)
{
	int gpu, ret = device_of(__func__, handle, &gpu);

	(void)link;
	*version = !ret && fg_w->switched ? 4 : 2; /* generation: NVLink 4 or NVLink 2 */
	return ret;
}

FG_API int nvmlDeviceGetP2PStatus(void *a, void *b, int index, int *status)
{
	(void)a;
	(void)b;
	(void)index;
	*status = 0; /* NVML_P2P_STATUS_OK */
	return NVML_SUCCESS;
}

FG_API int nvmlDeviceGetMaxPcieLinkGeneration(void *handle, unsigned int *generation)
{
	int gpu, ret = device_of(__func__, handle, &gpu);
	double rate = ret ? 0.0 : fg_bandwidth(gpu, FG_HOST);

	*generation = rate > 40.0 ? 5 : rate > 20.0 ? 4 : 3;
	return ret;
}

FG_API int nvmlDeviceGetMaxPcieLinkWidth(void *handle, unsigned int *width)
{
	int gpu;

	*width = 16;
	return device_of(__func__, handle, &gpu);
}

FG_API int nvmlDeviceGetNumaNodeId(void *handle, int *node)
{
	int gpu, ret = device_of(__func__, handle, &gpu);

	*node = ret ? -1 : told(gpu, "node", -1);
	return *node < 0 ? NVML_ERROR_NOT_SUPPORTED : ret;
}

FG_API int nvmlDeviceGetMigMode(void *handle, unsigned int *current, unsigned int *pending)
{
	int gpu, ret = device_of(__func__, handle, &gpu);

	*current = *pending = ret ? 0 : (unsigned int)told(gpu, "mig", 0);
	return ret;
}
