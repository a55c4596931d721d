/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kernel launches of the stand-in driver ("CUDA Driver API": module management, execution
 * control). A module has the functions "operands<N>": N parameters, each a `struct
 * fg_operand`. A launch reads or fills every block that its operands name, in their order,
 * as long as the GPU's memory needs for it, and takes effect at the call.
 *
 * Functions come as functions (cuModuleGetFunction) or as kernels (cuLibraryGetKernel),
 * which the driver's own runtime launches by their handle; each tells its parameters
 * through its own call only.
 */
#include "driver.h"

#include <stdlib.h>
#include <string.h>

#define FUNCTION_TAG 0x54000000u
#define KERNEL_TAG 0x55000000u
#define MOST 512

static uint64_t wrong;

uint64_t fg_wrong_reads(void)
{
	return __atomic_load_n(&wrong, __ATOMIC_RELAXED);
}

static int operands_of(const void *handle, unsigned int tag)
{
	uintptr_t value = (uintptr_t)handle;

	return value > tag && value <= tag + MOST ? (int)(value - tag) : 0;
}

static CUresult handle_of(void **out, const char *name, unsigned int tag)
{
	static const char prefix[] = "operands";
	long count = strncmp(name, prefix, sizeof(prefix) - 1)
			 ? 0
			 : strtol(name + sizeof(prefix) - 1, NULL, 10);

	if (count < 1 || count > MOST)
		return CUDA_ERROR_NOT_FOUND;
	*out = (void *)(uintptr_t)(tag + (unsigned long)count);
	return CUDA_SUCCESS;
}

FG_API CUresult cuModuleLoadData(void **module, const void *image)
{
	(void)image;
	*module = &wrong;
	return CUDA_SUCCESS;
}

FG_API CUresult cuModuleUnload(void *module)
{
	return module == &wrong ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

FG_API CUresult cuModuleGetFunction(void **function, void *module, const char *name)
{
	(void)module;
	return handle_of(function, name, FUNCTION_TAG);
}

FG_API CUresult cuLibraryGetKernel(void **kernel, void *library, const char *name)
{
	(void)library;
	return handle_of(kernel, name, KERNEL_TAG);
}

static CUresult param_info(int count, size_t index, size_t *offset, size_t *bytes)
{
	if (!count)
		return CUDA_ERROR_INVALID_HANDLE;
	if (index >= (size_t)count)
		return CUDA_ERROR_INVALID_VALUE;
	*offset = index * sizeof(struct fg_operand);
	*bytes = sizeof(struct fg_operand);
	return CUDA_SUCCESS;
}

FG_API CUresult cuFuncGetParamInfo(void *function, size_t index, size_t *offset, size_t *bytes)
{
	return param_info(operands_of(function, FUNCTION_TAG), index, offset, bytes);
}

FG_API CUresult cuKernelGetParamInfo(void *kernel, size_t index, size_t *offset, size_t *bytes)
{
	return param_info(operands_of(kernel, KERNEL_TAG), index, offset, bytes);
}

/* One operand, block by block. */
static CUresult operate(int gpu, const struct fg_operand *operand, uint64_t *time)
{
	uint64_t end = operand->addr + operand->bytes;
	bool write = operand->write;

	for (uint64_t at = operand->addr; at < end;) {
		uint64_t next = (at / FG_BLOCK_BYTES + 1) * FG_BLOCK_BYTES, hash = 0;
		uint32_t bytes = (uint32_t)((next < end ? next : end) - at);
		uint64_t compute = (uint64_t)(bytes / fg_w->gpu[gpu].hbm_bytes_per_ns);
		int status;

		*time = fg_kernel(gpu, at, bytes, write, operand->value, compute, *time,
				  write || !operand->value ? NULL : &hash, &status);
		if (status)
			return status;
		if (hash && hash != fg_hash_of(operand->value))
			__atomic_add_fetch(&wrong, 1, __ATOMIC_RELAXED);
		at = next;
	}
	return CUDA_SUCCESS;
}

static CUresult gather(struct fg_operand *out, int count, void **params, void **extra)
{
	const char *buffer = NULL;

	for (int i = 0; extra && i < 8 && extra[i]; i += 2)
		if (extra[i] == CU_LAUNCH_PARAM_BUFFER_POINTER)
			buffer = extra[i + 1];
	if (!params && !buffer)
		return CUDA_ERROR_INVALID_VALUE;
	for (int i = 0; i < count; i++)
		memcpy(&out[i], params ? params[i] : buffer + (size_t)i * sizeof(out[i]),
		       sizeof(out[i]));
	return CUDA_SUCCESS;
}

FG_API CUresult cuLaunchKernel(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
			       unsigned by, unsigned bz, unsigned shared, CUstream on,
			       void **params, void **extra)
{
	int count = operands_of(function, FUNCTION_TAG), gpu = fg_context_gpu();
	struct fg_operand operands[MOST];
	struct fg_stream *stream;
	CUresult ret;
	uint64_t time;

	if (!count)
		count = operands_of(function, KERNEL_TAG);
	if (!count)
		return CUDA_ERROR_INVALID_HANDLE;
	if (gpu == FG_NONE)
		return CUDA_ERROR_INVALID_CONTEXT;
	if (!gx || !gy || !gz || !bx || !by || !bz || shared > 256 << 10)
		return CUDA_ERROR_INVALID_VALUE;
	ret = gather(operands, count, params, extra);
	if (ret)
		return ret;
	ENTER();
	stream = fg_stream_of(on);
	time = stream ? fg_stream_start(stream) : 0;
	fg_unlock();
	if (!stream)
		return CUDA_ERROR_INVALID_HANDLE;
	for (int i = 0; i < count && !ret; i++)
		ret = operate(gpu, &operands[i], &time);
	ENTER();
	if (!ret && time > stream->tail)
		stream->tail = time;
	LEAVE(ret);
}
