/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The calls in which the shim sees what a program uses: launches, copies, graphs. Each
 * goes to the driver unchanged; what it used is noted when the driver took it.
 *
 * Every call exists twice, for the legacy and for the per-thread default stream (`_ptsz`).
 */
#include "shim.h"

#include <string.h>

#define PER_THREAD ((CUstream)2) /* CU_STREAM_PER_THREAD */

enum hook {
	LAUNCH,
	LAUNCH_EX,
	LAUNCH_COOPERATIVE,
	COPY_TO_DEVICE,
	COPY_TO_HOST,
	COPY_ON_DEVICE,
	COPY,
	SET_BYTES,
	SET_WORDS,
	GRAPH_LAUNCH,
	GRAPH_MAKE_PARAMS,
	GRAPH_MAKE_FLAGS,
	GRAPH_MAKE,
	GRAPH_DESTROY,
	MODULE_UNLOAD,
	LIBRARY_UNLOAD,
	HOOKS,
};

struct entry {
	const char *name;      /* as the directory is asked for it */
	const char *symbol[2]; /* [per-thread default stream] */
	void *ours[2];
};

static const struct entry entries[HOOKS];
static void *real_of[HOOKS][2];

static void *real(enum hook hook, bool per_thread)
{
	void *found = __atomic_load_n(&real_of[hook][per_thread], __ATOMIC_RELAXED);

	if (!found) {
		found = tg_shim_real(entries[hook].symbol[per_thread]);
		__atomic_store_n(&real_of[hook][per_thread], found, __ATOMIC_RELAXED);
	}
	return found;
}

/* Declares `call` as the driver's function of a hook, of this function's own type. */
#define REAL(hook, per_thread, ...)                                                                \
	CUresult (*call)(__VA_ARGS__);                                                             \
	__extension__ call = (CUresult(*)(__VA_ARGS__))real(hook, per_thread);                     \
	if (!call)                                                                                 \
	return CUDA_ERROR_NOT_FOUND

static CUstream stream_of(CUstream stream, bool per_thread)
{
	return !stream && per_thread ? PER_THREAD : stream;
}

struct use {
	struct tg_client *client;
	struct tg_spans spans;
	bool told;
};

static void note_launch(struct use *use, void *function, void **params, void **extra)
{
	use->client = tg_shim_watching();
	if (!use->client)
		return;
	tg_launches_begin(use->client, &use->spans);
	use->told = tg_params_scan(use->client, &use->spans, function, params, extra);
}

static void note_memory(struct use *use, CUdeviceptr one, CUdeviceptr other, size_t bytes)
{
	use->client = tg_shim_watching();
	if (!use->client)
		return;
	tg_launches_begin(use->client, &use->spans);
	tg_launches_exact(use->client, &use->spans, one, bytes);
	tg_launches_exact(use->client, &use->spans, other, bytes);
	use->told = true;
}

static CUresult made(const struct use *use, CUresult ret, CUstream stream, bool per_thread)
{
	if (use->client && !ret)
		tg_launches_end(use->client, &use->spans, stream_of(stream, per_thread), use->told);
	return ret;
}

static CUresult launch(bool pt, void *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
		       unsigned by, unsigned bz, unsigned shared, CUstream stream, void **params,
		       void **extra)
{
	struct use use;

	REAL(LAUNCH, pt, void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
	     unsigned, CUstream, void **, void **);
	note_launch(&use, f, params, extra);
	return made(&use, call(f, gx, gy, gz, bx, by, bz, shared, stream, params, extra), stream,
		    pt);
}

static CUresult launch_ex(bool pt, const CUlaunchConfig *config, void *f, void **params,
			  void **extra)
{
	struct use use;

	REAL(LAUNCH_EX, pt, const CUlaunchConfig *, void *, void **, void **);
	note_launch(&use, f, params, extra);
	return made(&use, call(config, f, params, extra), config ? config->stream : NULL, pt);
}

static CUresult launch_cooperative(bool pt, void *f, unsigned gx, unsigned gy, unsigned gz,
				   unsigned bx, unsigned by, unsigned bz, unsigned shared,
				   CUstream stream, void **params)
{
	struct use use;

	REAL(LAUNCH_COOPERATIVE, pt, void *, unsigned, unsigned, unsigned, unsigned, unsigned,
	     unsigned, unsigned, CUstream, void **);
	note_launch(&use, f, params, NULL);
	return made(&use, call(f, gx, gy, gz, bx, by, bz, shared, stream, params), stream, pt);
}

static CUresult copy_to_device(bool pt, CUdeviceptr to, const void *from, size_t bytes,
			       CUstream stream)
{
	struct use use;

	REAL(COPY_TO_DEVICE, pt, CUdeviceptr, const void *, size_t, CUstream);
	note_memory(&use, to, 0, bytes);
	return made(&use, call(to, from, bytes, stream), stream, pt);
}

static CUresult copy_to_host(bool pt, void *to, CUdeviceptr from, size_t bytes, CUstream stream)
{
	struct use use;

	REAL(COPY_TO_HOST, pt, void *, CUdeviceptr, size_t, CUstream);
	note_memory(&use, from, 0, bytes);
	return made(&use, call(to, from, bytes, stream), stream, pt);
}

static CUresult copy_between(enum hook hook, bool pt, CUdeviceptr to, CUdeviceptr from,
			     size_t bytes, CUstream stream)
{
	struct use use;

	REAL(hook, pt, CUdeviceptr, CUdeviceptr, size_t, CUstream);
	note_memory(&use, to, from, bytes);
	return made(&use, call(to, from, bytes, stream), stream, pt);
}

static CUresult set_bytes(bool pt, CUdeviceptr to, unsigned char value, size_t count,
			  CUstream stream)
{
	struct use use;

	REAL(SET_BYTES, pt, CUdeviceptr, unsigned char, size_t, CUstream);
	note_memory(&use, to, 0, count);
	return made(&use, call(to, value, count, stream), stream, pt);
}

static CUresult set_words(bool pt, CUdeviceptr to, unsigned value, size_t count, CUstream stream)
{
	struct use use;

	REAL(SET_WORDS, pt, CUdeviceptr, unsigned, size_t, CUstream);
	note_memory(&use, to, 0, count * sizeof(value));
	return made(&use, call(to, value, count, stream), stream, pt);
}

static CUresult graph_launch(bool pt, void *exec, CUstream stream)
{
	struct use use = {.client = tg_shim_watching()};

	REAL(GRAPH_LAUNCH, pt, void *, CUstream);
	if (use.client)
		use.told = tg_graph_spans(exec, &use.spans);
	return made(&use, call(exec, stream), stream, pt);
}

/* A graph made before the daemon came is learnt as well: it lives long. */
static CUresult graph_made(CUresult ret, void **exec, void *graph)
{
	struct tg_client *client = ret ? NULL : tg_shim_client();

	if (client && client->launches)
		tg_graph_made(client, *exec, graph);
	return ret;
}

static CUresult graph_make_params(bool pt, void **exec, void *graph, void *params)
{
	REAL(GRAPH_MAKE_PARAMS, pt, void **, void *, void *);
	return graph_made(call(exec, graph, params), exec, graph);
}

#define TWICE(name, per_thread_name, function, params, ...)                                        \
	TG_API CUresult name params;                                                               \
	TG_API CUresult per_thread_name params;                                                    \
	CUresult name params                                                                       \
	{                                                                                          \
		return function(false, __VA_ARGS__);                                               \
	}                                                                                          \
	CUresult per_thread_name params                                                            \
	{                                                                                          \
		return function(true, __VA_ARGS__);                                                \
	}

#define COPY_ON_DEVICE_(pt, ...) copy_between(COPY_ON_DEVICE, pt, __VA_ARGS__)
#define COPY_(pt, ...) copy_between(COPY, pt, __VA_ARGS__)

TWICE(cuLaunchKernel, cuLaunchKernel_ptsz, launch,
      (void *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
       unsigned shared, CUstream stream, void **params, void **extra),
      f, gx, gy, gz, bx, by, bz, shared, stream, params, extra)
TWICE(cuLaunchKernelEx, cuLaunchKernelEx_ptsz, launch_ex,
      (const CUlaunchConfig *config, void *f, void **params, void **extra), config, f, params,
      extra)
TWICE(cuLaunchCooperativeKernel, cuLaunchCooperativeKernel_ptsz, launch_cooperative,
      (void *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
       unsigned shared, CUstream stream, void **params),
      f, gx, gy, gz, bx, by, bz, shared, stream, params)
TWICE(cuMemcpyHtoDAsync_v2, cuMemcpyHtoDAsync_v2_ptsz, copy_to_device,
      (CUdeviceptr to, const void *from, size_t bytes, CUstream stream), to, from, bytes, stream)
TWICE(cuMemcpyDtoHAsync_v2, cuMemcpyDtoHAsync_v2_ptsz, copy_to_host,
      (void *to, CUdeviceptr from, size_t bytes, CUstream stream), to, from, bytes, stream)
TWICE(cuMemcpyDtoDAsync_v2, cuMemcpyDtoDAsync_v2_ptsz, COPY_ON_DEVICE_,
      (CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream), to, from, bytes, stream)
TWICE(cuMemcpyAsync, cuMemcpyAsync_ptsz, COPY_,
      (CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream), to, from, bytes, stream)
TWICE(cuMemsetD8Async, cuMemsetD8Async_ptsz, set_bytes,
      (CUdeviceptr to, unsigned char value, size_t count, CUstream stream), to, value, count,
      stream)
TWICE(cuMemsetD32Async, cuMemsetD32Async_ptsz, set_words,
      (CUdeviceptr to, unsigned value, size_t count, CUstream stream), to, value, count, stream)
TWICE(cuGraphLaunch, cuGraphLaunch_ptsz, graph_launch, (void *exec, CUstream stream), exec, stream)
TWICE(cuGraphInstantiateWithParams, cuGraphInstantiateWithParams_ptsz, graph_make_params,
      (void **exec, void *graph, void *params), exec, graph, params)

TG_API CUresult cuGraphInstantiateWithFlags(void **exec, void *graph, unsigned long long flags);
TG_API CUresult cuGraphInstantiate_v2(void **exec, void *graph, void **node, char *log,
				      size_t bytes);
TG_API CUresult cuGraphExecDestroy(void *exec);
TG_API CUresult cuModuleUnload(void *module);
TG_API CUresult cuLibraryUnload(void *library);

CUresult cuGraphInstantiateWithFlags(void **exec, void *graph, unsigned long long flags)
{
	REAL(GRAPH_MAKE_FLAGS, false, void **, void *, unsigned long long);
	return graph_made(call(exec, graph, flags), exec, graph);
}

CUresult cuGraphInstantiate_v2(void **exec, void *graph, void **node, char *log, size_t bytes)
{
	REAL(GRAPH_MAKE, false, void **, void *, void **, char *, size_t);
	return graph_made(call(exec, graph, node, log, bytes), exec, graph);
}

CUresult cuGraphExecDestroy(void *exec)
{
	REAL(GRAPH_DESTROY, false, void *);
	tg_graph_gone(exec);
	return call(exec);
}

CUresult cuModuleUnload(void *module)
{
	REAL(MODULE_UNLOAD, false, void *);
	tg_params_forget();
	return call(module);
}

CUresult cuLibraryUnload(void *library)
{
	REAL(LIBRARY_UNLOAD, false, void *);
	tg_params_forget();
	return call(library);
}

#define AT(name, symbol, function)                                                                 \
	{                                                                                          \
		name, {symbol, symbol "_ptsz"},                                                    \
		{                                                                                  \
			(void *)function, (void *)function##_ptsz                                  \
		}                                                                                  \
	}
#define ONCE(name, symbol, function)                                                               \
	{                                                                                          \
		name, {symbol, symbol},                                                            \
		{                                                                                  \
			(void *)function, (void *)function                                         \
		}                                                                                  \
	}

static const struct entry entries[HOOKS] = {
    [LAUNCH] = AT("cuLaunchKernel", "cuLaunchKernel", cuLaunchKernel),
    [LAUNCH_EX] = AT("cuLaunchKernelEx", "cuLaunchKernelEx", cuLaunchKernelEx),
    [LAUNCH_COOPERATIVE] =
	AT("cuLaunchCooperativeKernel", "cuLaunchCooperativeKernel", cuLaunchCooperativeKernel),
    [COPY_TO_DEVICE] = AT("cuMemcpyHtoDAsync", "cuMemcpyHtoDAsync_v2", cuMemcpyHtoDAsync_v2),
    [COPY_TO_HOST] = AT("cuMemcpyDtoHAsync", "cuMemcpyDtoHAsync_v2", cuMemcpyDtoHAsync_v2),
    [COPY_ON_DEVICE] = AT("cuMemcpyDtoDAsync", "cuMemcpyDtoDAsync_v2", cuMemcpyDtoDAsync_v2),
    [COPY] = AT("cuMemcpyAsync", "cuMemcpyAsync", cuMemcpyAsync),
    [SET_BYTES] = AT("cuMemsetD8Async", "cuMemsetD8Async", cuMemsetD8Async),
    [SET_WORDS] = AT("cuMemsetD32Async", "cuMemsetD32Async", cuMemsetD32Async),
    [GRAPH_LAUNCH] = AT("cuGraphLaunch", "cuGraphLaunch", cuGraphLaunch),
    [GRAPH_MAKE_PARAMS] = AT("cuGraphInstantiateWithParams", "cuGraphInstantiateWithParams",
			     cuGraphInstantiateWithParams),
    [GRAPH_MAKE_FLAGS] = ONCE("cuGraphInstantiateWithFlags", "cuGraphInstantiateWithFlags",
			      cuGraphInstantiateWithFlags),
    [GRAPH_MAKE] = ONCE("cuGraphInstantiate", "cuGraphInstantiate_v2", cuGraphInstantiate_v2),
    [GRAPH_DESTROY] = ONCE("cuGraphExecDestroy", "cuGraphExecDestroy", cuGraphExecDestroy),
    [MODULE_UNLOAD] = ONCE("cuModuleUnload", "cuModuleUnload", cuModuleUnload),
    [LIBRARY_UNLOAD] = ONCE("cuLibraryUnload", "cuLibraryUnload", cuLibraryUnload),
};

void *tg_hook_by_name(const char *name, bool per_thread_stream)
{
	for (int i = 0; i < HOOKS; i++)
		if (!strcmp(name, entries[i].name))
			return entries[i].ours[per_thread_stream];
	return NULL;
}

void *tg_hook_by_symbol(const char *symbol)
{
	for (int i = 0; i < HOOKS; i++)
		for (int j = 0; j < 2; j++)
			if (!strcmp(symbol, entries[i].symbol[j]))
				return entries[i].ours[j];
	return NULL;
}
