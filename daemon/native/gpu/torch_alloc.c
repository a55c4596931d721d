/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Entry points for torch.cuda.memory.CUDAPluggableAllocator: PyTorch's memory becomes
 * tracked memory, without the shim. docs/operate/examples/torch_allocator.py shows the use.
 *
 * The same environment as the shim's: TIERD_GPU_SOCKET, TIERD_GPU_DRIVER. Allocations
 * below a chunk share none with others here, so PyTorch should be told to make few.
 */
#include "client.h"

#include <stdlib.h>
#include <sys/types.h>

TG_API void *tg_torch_alloc(ssize_t bytes, int device, void *stream);
TG_API void tg_torch_free(void *addr, ssize_t bytes, int device, void *stream);

static struct tg_client *clients[TGW_MAX_GPUS];
static pthread_mutex_t clients_lock = PTHREAD_MUTEX_INITIALIZER;

static struct tg_client *client_of(int device)
{
	const char *socket = getenv("TIERD_GPU_SOCKET");
	struct tg_options options = {
	    .driver = getenv("TIERD_GPU_DRIVER"),
	    .socket = socket ? socket : TG_SOCKET,
	    .name = "torch",
	    .device = device,
	    .role = TG_BORROW,
	};

	if (device < 0 || device >= TGW_MAX_GPUS)
		return NULL;
	pthread_mutex_lock(&clients_lock);
	if (!clients[device] && tg_open(&options, &clients[device]))
		clients[device] = NULL;
	pthread_mutex_unlock(&clients_lock);
	return clients[device];
}

/* NULL makes PyTorch raise its out-of-memory error. */
void *tg_torch_alloc(ssize_t bytes, int device, void *stream)
{
	struct tg_client *client = client_of(device);
	uint64_t addr = 0;

	(void)stream;
	if (bytes <= 0 || !client || tg_alloc(client, (size_t)bytes, &addr))
		return NULL;
	return (void *)(uintptr_t)addr;
}

void tg_torch_free(void *addr, ssize_t bytes, int device, void *stream)
{
	struct tg_client *client = client_of(device);

	(void)bytes;
	if (!addr || !client || tg_enter(client, device))
		return;
	/* Work on the stream may still use it; the driver's free would wait as well. */
	client->driver.stream_synchronize(stream);
	tg_leave(client);
	tg_free(client, (uint64_t)(uintptr_t)addr);
}
