/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Streams and events of the stand-in driver ("CUDA Driver API": stream and event
 * management).
 *
 * A failed operation shows at the next query of its stream, once. The real driver may
 * keep the error until the context is gone; the library under test treats both alike.
 */
#include "driver.h"

#define STREAM_TAG 0x51000000u
#define EVENT_TAG 0x52000000u

struct fg_stream *fg_stream_of(CUstream handle)
{
	uintptr_t value = (uintptr_t)handle;
	int device = fg_context_gpu(), index;

	if (value >= STREAM_TAG && value < STREAM_TAG + FG_MAX_STREAMS) {
		struct fg_stream *stream = &fg_w->stream[value - STREAM_TAG];

		return stream->used && stream->owner == fg_self() ? stream : NULL;
	}
	if (value > 2 || device == FG_NONE)
		return NULL;
	/* The default stream of a tenant and device: from the end of the table. */
	index = FG_MAX_STREAMS - 1 - (fg_self() * FG_MAX_GPUS + device);
	fg_w->stream[index].used = true;
	fg_w->stream[index].owner = fg_self();
	fg_w->stream[index].gpu = device;
	return &fg_w->stream[index];
}

uint64_t fg_stream_start(const struct fg_stream *stream)
{
	return stream->tail > fg_present() ? stream->tail : fg_present();
}

FG_API CUresult cuStreamCreate(CUstream *out, unsigned int flags)
{
	ENTER();
	(void)flags;
	if (fg_context_gpu() == FG_NONE)
		LEAVE(CUDA_ERROR_INVALID_CONTEXT);
	for (int i = 0; i < FG_MAX_STREAMS - FG_MAX_TENANTS * FG_MAX_GPUS; i++) {
		if (fg_w->stream[i].used)
			continue;
		fg_w->stream[i] =
		    (struct fg_stream){.used = true, .owner = fg_self(), .gpu = fg_context_gpu()};
		*out = (CUstream)(uintptr_t)(STREAM_TAG + (unsigned int)i);
		LEAVE(CUDA_SUCCESS);
	}
	LEAVE(CUDA_ERROR_OUT_OF_MEMORY);
}

FG_API CUresult cuStreamDestroy_v2(CUstream handle)
{
	struct fg_stream *stream;

	ENTER();
	stream = fg_stream_of(handle);
	if (stream)
		stream->used = false;
	LEAVE(stream ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE);
}

static CUresult status_of(struct fg_stream *stream)
{
	CUresult error = stream->error;

	stream->error = 0;
	if (!error && fg_w->gpu[stream->gpu].lost)
		error = CUDA_ERROR_DEVICE_UNAVAILABLE;
	return error;
}

#define QUERY_NS 600 /* measured: cuEventQuery on an H100, driver 580 */

FG_API CUresult cuStreamQuery(CUstream handle)
{
	struct fg_stream *stream;
	CUresult error;

	ENTER();
	if (fg_unsafe_call())
		LEAVE(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
	fg_spend(QUERY_NS);
	stream = fg_stream_of(handle);
	if (!stream)
		LEAVE(CUDA_ERROR_INVALID_HANDLE);
	error = status_of(stream);
	if (!error && stream->tail > fg_present())
		error = CUDA_ERROR_NOT_READY;
	LEAVE(error);
}

FG_API CUresult cuStreamSynchronize(CUstream handle)
{
	struct fg_stream *stream;

	ENTER();
	if (fg_unsafe_call())
		LEAVE(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
	stream = fg_stream_of(handle);
	if (!stream)
		LEAVE(CUDA_ERROR_INVALID_HANDLE);
	fg_spend_until(fg_stream_start(stream));
	LEAVE(status_of(stream));
}

FG_API CUresult cuCtxSynchronize(void)
{
	uint64_t latest;
	int device = fg_context_gpu();

	ENTER();
	if (device == FG_NONE)
		LEAVE(CUDA_ERROR_INVALID_CONTEXT);
	latest = fg_present();
	for (int i = 0; i < FG_MAX_STREAMS; i++) {
		struct fg_stream *s = &fg_w->stream[i];

		if (s->used && s->owner == fg_self() && s->gpu == device && s->tail > latest)
			latest = s->tail;
	}
	fg_spend_until(latest);
	LEAVE(fg_w->gpu[device].lost ? CUDA_ERROR_DEVICE_UNAVAILABLE : CUDA_SUCCESS);
}

static struct fg_event *event_of(CUevent handle)
{
	uintptr_t value = (uintptr_t)handle;
	struct fg_event *event;

	if (value < EVENT_TAG || value >= EVENT_TAG + FG_MAX_EVENTS)
		return NULL;
	event = &fg_w->event[value - EVENT_TAG];
	return event->used && event->owner == fg_self() ? event : NULL;
}

FG_API CUresult cuEventCreate(CUevent *out, unsigned int flags)
{
	ENTER();
	(void)flags;
	for (int i = 0; i < FG_MAX_EVENTS; i++) {
		if (fg_w->event[i].used)
			continue;
		fg_w->event[i] =
		    (struct fg_event){.used = true, .owner = fg_self(), .stream = FG_NONE};
		*out = (CUevent)(uintptr_t)(EVENT_TAG + (unsigned int)i);
		LEAVE(CUDA_SUCCESS);
	}
	LEAVE(CUDA_ERROR_OUT_OF_MEMORY);
}

FG_API CUresult cuEventDestroy_v2(CUevent handle)
{
	struct fg_event *event;

	ENTER();
	event = event_of(handle);
	if (event)
		event->used = false;
	LEAVE(event ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE);
}

FG_API CUresult cuEventRecord(CUevent handle, CUstream on)
{
	struct fg_event *event;
	struct fg_stream *stream;

	ENTER();
	event = event_of(handle);
	stream = fg_stream_of(on);
	if (!event || !stream)
		LEAVE(CUDA_ERROR_INVALID_HANDLE);
	event->at = fg_stream_start(stream);
	event->stream = (int32_t)(stream - fg_w->stream);
	LEAVE(CUDA_SUCCESS);
}

FG_API CUresult cuEventQuery(CUevent handle)
{
	struct fg_event *event;
	CUresult error = CUDA_SUCCESS;

	ENTER();
	if (fg_unsafe_call())
		LEAVE(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
	fg_spend(QUERY_NS);
	event = event_of(handle);
	if (!event)
		LEAVE(CUDA_ERROR_INVALID_HANDLE);
	if (event->stream != FG_NONE)
		error = status_of(&fg_w->stream[event->stream]);
	if (!error && event->at > fg_present())
		error = CUDA_ERROR_NOT_READY;
	LEAVE(error);
}

FG_API CUresult cuEventSynchronize(CUevent handle)
{
	struct fg_event *event;

	ENTER();
	if (fg_unsafe_call())
		LEAVE(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
	event = event_of(handle);
	if (!event)
		LEAVE(CUDA_ERROR_INVALID_HANDLE);
	fg_spend_until(event->at);
	LEAVE(event->stream == FG_NONE ? CUDA_SUCCESS : status_of(&fg_w->stream[event->stream]));
}

FG_API CUresult cuStreamWaitEvent(CUstream handle, CUevent on, unsigned int flags)
{
	struct fg_stream *stream;
	struct fg_event *event;

	ENTER();
	(void)flags;
	stream = fg_stream_of(handle);
	event = event_of(on);
	if (!stream || !event)
		LEAVE(CUDA_ERROR_INVALID_HANDLE);
	if (event->at > stream->tail)
		stream->tail = event->at;
	LEAVE(CUDA_SUCCESS);
}
