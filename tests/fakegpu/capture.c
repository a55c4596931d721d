/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Graph capture of the stand-in driver, without graphs: what it forbids to whom.
 *
 * The rules are those of cuThreadExchangeStreamCaptureMode ("CUDA Driver API", stream
 * management). A thread in global mode (every thread at first) may not make potentially
 * unsafe calls while it has a capture under way itself that is not relaxed, or any thread
 * of the process has one that began in global mode; in thread-local mode only its own
 * count; in relaxed mode none does. Such a call fails and the captures that forbade it are
 * invalid. Measured on an H100, driver 580: cuEventQuery is such a call, cuMemGetInfo and
 * cuMemPrefetchAsync are not.
 */
#include "driver.h"

enum { GLOBAL = 0, LOCAL = 1, RELAXED = 2 };

static _Thread_local int mode = GLOBAL;
static _Thread_local uint32_t own_captures; /* bits of the slots below */

static bool forbids(int slot, const struct fg_capture *capture)
{
	if (!capture->used || capture->owner != fg_self() || mode == RELAXED)
		return false;
	if (own_captures & 1u << slot)
		return capture->mode != RELAXED;
	return mode == GLOBAL && capture->mode == GLOBAL;
}

CUresult fg_unsafe_call(void)
{
	CUresult ret = CUDA_SUCCESS;

	for (int i = 0; i < FG_MAX_CAPTURES; i++)
		if (forbids(i, &fg_w->capture[i])) {
			fg_w->capture[i].invalid = true;
			ret = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
		}
	return ret;
}

FG_API CUresult cuThreadExchangeStreamCaptureMode(int *value)
{
	int old = mode;

	if (*value < GLOBAL || *value > RELAXED)
		return CUDA_ERROR_INVALID_VALUE;
	mode = *value;
	*value = old;
	return CUDA_SUCCESS;
}

FG_API CUresult cuStreamBeginCapture_v2(CUstream handle, int how)
{
	struct fg_stream *stream;

	ENTER();
	stream = fg_stream_of(handle);
	if (!stream || how < GLOBAL || how > RELAXED)
		LEAVE(CUDA_ERROR_INVALID_VALUE);
	for (int i = 0; i < FG_MAX_CAPTURES; i++) {
		struct fg_capture *capture = &fg_w->capture[i];

		if (capture->used)
			continue;
		*capture = (struct fg_capture){
		    .used = true,
		    .owner = fg_self(),
		    .stream = (int32_t)(stream - fg_w->stream),
		    .mode = how,
		};
		own_captures |= 1u << i;
		LEAVE(CUDA_SUCCESS);
	}
	LEAVE(CUDA_ERROR_OUT_OF_MEMORY);
}

FG_API CUresult cuStreamEndCapture(CUstream handle, void **graph)
{
	struct fg_stream *stream;

	ENTER();
	*graph = NULL;
	stream = fg_stream_of(handle);
	for (int i = 0; stream && i < FG_MAX_CAPTURES; i++) {
		struct fg_capture *capture = &fg_w->capture[i];

		if (!capture->used || capture->stream != stream - fg_w->stream)
			continue;
		capture->used = false;
		own_captures &= ~(1u << i);
		if (capture->invalid)
			LEAVE(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
		*graph = capture; /* not NULL; there is nothing in it */
		LEAVE(CUDA_SUCCESS);
	}
	LEAVE(CUDA_ERROR_INVALID_VALUE);
}

FG_API CUresult cuStreamIsCapturing(CUstream handle, int *status)
{
	struct fg_stream *stream;

	ENTER();
	stream = fg_stream_of(handle);
	*status = 0;
	for (int i = 0; stream && i < FG_MAX_CAPTURES; i++)
		if (fg_w->capture[i].used && fg_w->capture[i].stream == stream - fg_w->stream)
			*status = fg_w->capture[i].invalid ? 2 : 1;
	LEAVE(stream ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE);
}
