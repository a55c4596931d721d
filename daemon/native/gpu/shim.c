/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The LD_PRELOAD shim: takes over cuMemAlloc, cuMemFree and cuMemGetInfo however the
 * program finds them (linked, dlsym, cuGetProcAddress). With "borrow", hooks.c reads
 * launches, copies, fills and graphs as they go by. Pools and IPC stay the driver's.
 *
 *   TIERD_GPU          "borrow", "lend" or "off" (the default)
 *   TIERD_GPU_SOCKET   where the daemon listens (/run/tierd/gpu.sock)
 *   TIERD_GPU_LEAST    allocations below this many bytes stay the driver's (2 MiB)
 *   TIERD_GPU_DRIVER   the driver library (libcuda.so.1)
 *
 * Whatever goes wrong here, the call goes to the driver as if the shim were not there.
 */
#include "shim.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void *tg_real_dlsym(void *library, const char *name);
void *(*tg_next_dlsym(void))(void *, const char *);

static struct tg_client *clients[TGW_MAX_GPUS];
static bool tried[TGW_MAX_GPUS];
static pthread_mutex_t clients_lock = PTHREAD_MUTEX_INITIALIZER;
static struct tg_driver driver;
static bool driver_tried;
static int role;
static size_t least = TG_CHUNK_BYTES;
static pid_t owner;

static int role_from(const char *text)
{
	if (!text)
		return 0;
	if (!strcmp(text, "borrow"))
		return TG_BORROW;
	if (!strcmp(text, "lend"))
		return TG_LEND;
	if (*text && strcmp(text, "off"))
		fprintf(stderr,
			"tierd-gpu: TIERD_GPU=%s is none of borrow, lend and off: "
			"memory stays the driver's\n",
			text);
	return 0;
}

__attribute__((constructor)) static void read_settings(void)
{
	const char *bytes = getenv("TIERD_GPU_LEAST");

	owner = getpid();
	role = role_from(getenv("TIERD_GPU"));
	if (bytes)
		least = strtoull(bytes, NULL, 0);
}

static struct tg_driver *real_driver(void)
{
	pthread_mutex_lock(&clients_lock);
	if (!driver_tried) {
		driver_tried = true;
		tg_driver_open(&driver, getenv("TIERD_GPU_DRIVER"));
	}
	pthread_mutex_unlock(&clients_lock);
	return driver.library ? &driver : NULL;
}

/* The client of the thread's current device; NULL: leave it to the driver. */
static struct tg_client *client_here(void)
{
	struct tg_driver *d = real_driver();
	const char *socket = getenv("TIERD_GPU_SOCKET");
	CUdevice device;

	if (!d || !role || getpid() != owner || d->context_device(&device) || device < 0 ||
	    device >= TGW_MAX_GPUS)
		return NULL;
	pthread_mutex_lock(&clients_lock);
	if (!tried[device]) {
		struct tg_options options = {
		    .driver = getenv("TIERD_GPU_DRIVER"),
		    .socket = socket ? socket : TG_SOCKET,
		    .name = program_invocation_short_name,
		    .device = device,
		    .role = role,
		};

		tried[device] = true;
		if (tg_open(&options, &clients[device]))
			clients[device] = NULL;
		else if (role & TG_BORROW)
			tg_launches_open(clients[device]);
	}
	pthread_mutex_unlock(&clients_lock);
	return clients[device];
}

struct tg_client *tg_shim_client(void)
{
	CUdevice device;

	/* Only one that an allocation has opened has memory that a launch could use. */
	if (!(role & TG_BORROW) || driver.context_device(&device) || device < 0 ||
	    device >= TGW_MAX_GPUS || getpid() != owner)
		return NULL;
	return __atomic_load_n(&clients[device], __ATOMIC_ACQUIRE);
}

struct tg_client *tg_shim_watching(void)
{
	struct tg_client *client = tg_shim_client();

	return client && tg_launches_watching(client) ? client : NULL;
}

TG_API CUresult cuMemAlloc_v2(CUdeviceptr *out, size_t bytes)
{
	struct tg_client *client = client_here();
	uint64_t addr;

	if (client && role & TG_BORROW && bytes >= least && !tg_alloc(client, bytes, &addr)) {
		*out = addr;
		return CUDA_SUCCESS;
	}
	return real_driver() ? driver.mem_alloc(out, bytes) : CUDA_ERROR_NOT_INITIALIZED;
}

TG_API CUresult cuMemFree_v2(CUdeviceptr addr)
{
	for (int device = 0; addr && role && device < TGW_MAX_GPUS; device++)
		if (clients[device] && !tg_free(clients[device], addr))
			return CUDA_SUCCESS;
	return real_driver() ? driver.mem_free(addr) : CUDA_ERROR_NOT_INITIALIZED;
}

TG_API CUresult cuMemGetInfo_v2(size_t *free_bytes, size_t *total)
{
	struct tg_client *client = client_here();

	if (client && !tg_mem_info(client, free_bytes, total))
		return CUDA_SUCCESS;
	return real_driver() ? driver.mem_info(free_bytes, total) : CUDA_ERROR_NOT_INITIALIZED;
}

typedef CUresult (*get_entry_v1)(const char *, void **, int, unsigned long long);
typedef CUresult (*get_entry_v2)(const char *, void **, int, unsigned long long, int *);

TG_API CUresult cuGetProcAddress(const char *name, void **entry, int version,
				 unsigned long long flags);
TG_API CUresult cuGetProcAddress_v2(const char *name, void **entry, int version,
				    unsigned long long flags, int *status);

/* What stands in for an entry point of the driver, by its name with or without suffix. */
static void *replacement(const char *name)
{
	static const struct {
		const char *plain, *versioned;
		void *entry;
	} table[] = {
	    {"cuMemAlloc", "cuMemAlloc_v2", (void *)cuMemAlloc_v2},
	    {"cuMemFree", "cuMemFree_v2", (void *)cuMemFree_v2},
	    {"cuMemGetInfo", "cuMemGetInfo_v2", (void *)cuMemGetInfo_v2},
	};

	for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++)
		if (!strcmp(name, table[i].plain) || !strcmp(name, table[i].versioned))
			return table[i].entry;
	return NULL;
}

/* Without cuInit: a program may ask for entry points and never use a GPU. */
void *tg_shim_real(const char *symbol)
{
	static void *library;
	const char *path = getenv("TIERD_GPU_DRIVER");

	if (!library)
		library = dlopen(path ? path : "libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
	return library ? tg_real_dlsym(library, symbol) : NULL;
}

/* The runtime asks for the directory itself by its own name. */
static void substitute(const char *name, void **entry, int version, unsigned long long flags)
{
	void *ours = role ? replacement(name) : NULL;

	if (!ours && role & TG_BORROW)
		ours = tg_hook_by_name(name, flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM);

	if (ours && version >= 3020)
		*entry = ours;
	else if (role && !strcmp(name, "cuGetProcAddress"))
		*entry = version >= 12000 ? (void *)cuGetProcAddress_v2 : (void *)cuGetProcAddress;
}

CUresult cuGetProcAddress_v2(const char *name, void **entry, int version, unsigned long long flags,
			     int *status)
{
	get_entry_v2 real;
	CUresult ret;

	__extension__ real = (get_entry_v2)tg_shim_real("cuGetProcAddress_v2");
	ret = real ? real(name, entry, version, flags, status) : CUDA_ERROR_NOT_FOUND;
	if (!ret && entry && *entry)
		substitute(name, entry, version, flags);
	return ret;
}

CUresult cuGetProcAddress(const char *name, void **entry, int version, unsigned long long flags)
{
	get_entry_v1 real;
	CUresult ret;

	__extension__ real = (get_entry_v1)tg_shim_real("cuGetProcAddress");
	ret = real ? real(name, entry, version, flags) : CUDA_ERROR_NOT_FOUND;
	if (!ret && entry && *entry)
		substitute(name, entry, version, flags);
	return ret;
}

static void *find_ours(void *library, const char *name)
{
	void *found = tg_real_dlsym(library, name), *ours;

	if (!found || !strcmp(name, "cuGetProcAddress"))
		return found ? (void *)cuGetProcAddress : NULL;
	if (!strcmp(name, "cuGetProcAddress_v2"))
		return (void *)cuGetProcAddress_v2;
	/* Without the suffix it is the interface of before version 3.2. */
	ours = strstr(name, "_v2") ? replacement(name) : NULL;
	if (!ours && role & TG_BORROW)
		ours = tg_hook_by_symbol(name);
	return ours ? ours : found;
}

typedef void *(*finder)(void *, const char *);

/* RTLD_NEXT is what comes behind the caller, which the C library tells by the address that
 * the call returns to. */
static finder finder_of(void *library, const char *name)
{
	bool theirs = !role || library == RTLD_NEXT || strncmp(name, "cu", 2);

	return theirs ? tg_next_dlsym() : find_ours;
}

/* Programs that open the driver themselves find the shim's entry points this way. The last
 * call must be a jump, so that it returns to the caller of this one. */
TG_API __attribute__((optimize("O2"))) void *dlsym(void *library, const char *name)
{
	return finder_of(library, name)(library, name);
}
