/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The parameters of a launch, read with the sizes that the driver tells of a function
 * ("CUDA Driver API", cuFuncGetParamInfo, cuKernelGetParamInfo; 12.4 and later), or from
 * the buffer that the caller gives ("Execution control", CU_LAUNCH_PARAM_BUFFER_POINTER).
 * The sizes of a function are asked for once.
 */
#include "launches.h"

#include <string.h>

struct function {
	void *handle;
	uint32_t first; /* in sizes[] */
	uint16_t count; /* parameters up to the last that can hold an address */
	bool unreadable;
};

static pthread_rwlock_t lock = PTHREAD_RWLOCK_INITIALIZER;
static struct function table[TG_FUNCTIONS];
static uint32_t sizes[TG_SIZES], functions, sizes_used;

static void forget(void)
{
	memset(table, 0, sizeof(table));
	functions = sizes_used = 0;
}

void tg_params_forget(void)
{
	pthread_rwlock_wrlock(&lock);
	forget();
	pthread_rwlock_unlock(&lock);
}

static struct function *slot_of(void *handle)
{
	uint32_t at = (uint32_t)(((uintptr_t)handle >> 4) * 2654435761u) % TG_FUNCTIONS;

	while (table[at].handle && table[at].handle != handle)
		at = (at + 1) % TG_FUNCTIONS;
	return &table[at];
}

static CUresult info(const struct tg_driver *driver, bool kernel, void *handle, size_t index,
		     size_t *bytes)
{
	size_t offset;

	if (kernel)
		return driver->kernel_param_info(handle, index, &offset, bytes);
	return driver->func_param_info(handle, index, &offset, bytes);
}

/* A function's handle may be a kernel's: the runtime launches those so. */
static bool learn(const struct tg_driver *driver, void *handle, struct function *out)
{
	bool kernel = false;
	size_t bytes;
	CUresult ret;

	*out = (struct function){.handle = handle, .first = sizes_used};
	if (!driver->func_param_info)
		return false;
	ret = info(driver, false, handle, 0, &bytes);
	if (ret && ret != CUDA_ERROR_INVALID_VALUE && driver->kernel_param_info) {
		kernel = true;
		ret = info(driver, true, handle, 0, &bytes);
	}
	for (uint32_t i = 0; !ret; i++) {
		if (sizes_used == TG_SIZES || i == UINT16_MAX)
			return false;
		sizes[sizes_used++] = (uint32_t)bytes;
		if (bytes >= TG_LEAST_PARAMETER)
			out->count = (uint16_t)(i + 1);
		ret = info(driver, kernel, handle, i + 1, &bytes);
	}
	sizes_used = out->first + out->count;
	return ret == CUDA_ERROR_INVALID_VALUE; /* there is no such parameter: that was all */
}

/* With the lock held for reading on return. */
static struct function *known(const struct tg_driver *driver, void *handle)
{
	struct function *f;

	pthread_rwlock_rdlock(&lock);
	f = slot_of(handle);
	if (f->handle)
		return f;
	pthread_rwlock_unlock(&lock);
	pthread_rwlock_wrlock(&lock);
	if (functions >= TG_FUNCTIONS / 2 || sizes_used >= TG_SIZES - 4096)
		forget();
	f = slot_of(handle);
	if (!f->handle) {
		f->unreadable = !learn(driver, handle, f);
		functions++;
	}
	pthread_rwlock_unlock(&lock);
	pthread_rwlock_rdlock(&lock);
	return slot_of(handle); /* empty if others filled the table meanwhile */
}

static bool scan_buffer(struct tg_client *c, struct tg_spans *spans, void **extra)
{
	const void *buffer = NULL;
	const size_t *bytes = NULL;

	for (int i = 0; i < 8 && extra[i] != CU_LAUNCH_PARAM_END; i += 2) {
		if (extra[i] == CU_LAUNCH_PARAM_BUFFER_POINTER)
			buffer = extra[i + 1];
		else if (extra[i] == CU_LAUNCH_PARAM_BUFFER_SIZE)
			bytes = extra[i + 1];
	}
	if (buffer && bytes)
		tg_launches_scan(c, spans, buffer, *bytes);
	return buffer && bytes;
}

bool tg_params_scan(struct tg_client *c, struct tg_spans *spans, void *function, void **params,
		    void **extra)
{
	const struct function *f;
	bool told;

	if (!params)
		return !extra || scan_buffer(c, spans, extra);
	f = known(&c->driver, function);
	told = f->handle && !f->unreadable;
	for (uint32_t i = 0; told && i < f->count; i++)
		if (sizes[f->first + i] >= TG_LEAST_PARAMETER)
			tg_launches_scan(c, spans, params[i], sizes[f->first + i]);
	pthread_rwlock_unlock(&lock);
	return told;
}
