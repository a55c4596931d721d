/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copies and fills of the stand-in driver ("CUDA Driver API": cuMemcpy*, cuMemset*).
 */
#include "driver.h"

#include <string.h>

/* Locks the world for a call on a stream; after an error it is not locked. */
static CUresult enter(CUstream handle, struct fg_stream **stream)
{
	if (fg_lock())
		return CUDA_ERROR_NO_DEVICE;
	*stream = fg_stream_of(handle);
	if (*stream)
		return CUDA_SUCCESS;
	fg_unlock();
	return CUDA_ERROR_INVALID_HANDLE;
}

/* The part of a copy inside one block; `plain` is ordinary memory, read or written. */
static CUresult copy_piece(CUdeviceptr addr, uint8_t *plain, uint64_t bytes, bool write,
			   uint64_t *when)
{
	struct fg_block *block = fg_find(addr);
	uint64_t offset = addr % FG_BLOCK_BYTES;
	int device = fg_context_gpu(), where;
	int32_t lanes[2];
	CUresult ret;

	if (!block || block->lost)
		return CUDA_ERROR_ILLEGAL_ADDRESS;
	fg_wait_block(block, when);
	if (!block->resident) {
		ret = fg_migrate(block, device, FG_BLOCK_BYTES, when, FG_NONE);
		if (ret)
			return ret;
	}
	where = fg_where(block);
	if (where != FG_HOST)
		*when = write ? fg_transfer(FG_HOST, where, bytes, *when, lanes)
			      : fg_transfer(where, FG_HOST, bytes, *when, lanes);
	if (offset >= fg_w->payload)
		return CUDA_SUCCESS;
	bytes = bytes < fg_w->payload - offset ? bytes : fg_w->payload - offset;
	if (write)
		memcpy(fg_bytes(block, where) + offset, plain, bytes);
	else
		memcpy(plain, fg_bytes(block, where) + offset, bytes);
	return CUDA_SUCCESS;
}

static CUresult copy(CUdeviceptr addr, uint8_t *plain, uint64_t bytes, bool write, CUstream handle)
{
	struct fg_stream *stream;
	CUresult ret = enter(handle, &stream);

	if (ret)
		return ret;
	while (!ret && bytes) {
		uint64_t left = FG_BLOCK_BYTES - addr % FG_BLOCK_BYTES;
		uint64_t piece = bytes < left ? bytes : left;
		uint64_t when = fg_stream_start(stream);

		ret = copy_piece(addr, plain, piece, write, &when);
		stream->tail = when;
		addr += piece;
		plain += piece;
		bytes -= piece;
	}
	fg_unlock();
	return ret;
}

FG_API CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void *from, size_t bytes, CUstream s)
{
	return copy(to, (uint8_t *)(uintptr_t)from, bytes, true, s);
}

FG_API CUresult cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from, size_t bytes, CUstream s)
{
	return copy(from, to, bytes, false, s);
}

static CUresult pair(CUdeviceptr to, CUdeviceptr from, uint64_t bytes, struct fg_stream *stream)
{
	struct fg_block *a = fg_find(from), *b = fg_find(to);
	uint64_t when = fg_stream_start(stream);
	uint64_t at = from % FG_BLOCK_BYTES, into = to % FG_BLOCK_BYTES, kept = bytes;
	int source, dest;
	CUresult ret = CUDA_SUCCESS;

	if (!a || !b || a->lost || b->lost)
		return CUDA_ERROR_ILLEGAL_ADDRESS;
	if (!a->resident)
		ret = fg_migrate(a, fg_context_gpu(), FG_BLOCK_BYTES, &when, FG_NONE);
	if (!ret && !b->resident)
		ret = fg_migrate(b, fg_context_gpu(), FG_BLOCK_BYTES, &when, FG_NONE);
	if (ret)
		return ret;
	fg_wait_block(a, &when);
	fg_wait_block(b, &when);
	dest = fg_where(b);
	source = fg_where(a);
	if (source != dest)
		fg_copy_op(b, source, dest, bytes, &when, (int)(stream - fg_w->stream));
	if (at < fg_w->payload && into < fg_w->payload) {
		kept = kept < fg_w->payload - at ? kept : fg_w->payload - at;
		kept = kept < fg_w->payload - into ? kept : fg_w->payload - into;
		memmove(fg_bytes(b, dest) + into, fg_bytes(a, source) + at, kept);
	}
	stream->tail = when;
	return CUDA_SUCCESS;
}

FG_API CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream s)
{
	struct fg_stream *stream;
	CUresult ret = enter(s, &stream);

	if (ret)
		return ret;
	while (!ret && bytes) {
		uint64_t left = FG_BLOCK_BYTES - from % FG_BLOCK_BYTES;
		uint64_t room = FG_BLOCK_BYTES - to % FG_BLOCK_BYTES;
		uint64_t piece = bytes < left ? bytes : left;

		piece = piece < room ? piece : room;
		ret = pair(to, from, piece, stream);
		to += piece;
		from += piece;
		bytes -= piece;
	}
	fg_unlock();
	return ret;
}

/* A kernel of the driver's: managed blocks come to the device and are written there. */
FG_API CUresult cuMemsetD8Async(CUdeviceptr addr, unsigned char value, size_t bytes, CUstream s)
{
	int device = fg_context_gpu();
	struct fg_stream *stream;
	CUresult ret = enter(s, &stream);

	if (ret)
		return ret;
	while (!ret && bytes) {
		uint64_t offset = addr % FG_BLOCK_BYTES, left = FG_BLOCK_BYTES - offset;
		uint64_t piece = bytes < left ? bytes : left;
		struct fg_block *block = fg_find(addr);
		uint64_t when = fg_stream_start(stream);
		int where = device;

		if (!block || block->lost) {
			ret = CUDA_ERROR_ILLEGAL_ADDRESS;
			break;
		}
		if (block->kind == FG_MANAGED)
			ret = fg_migrate(block, device, FG_BLOCK_BYTES, &when, FG_NONE);
		else
			where = fg_where(block);
		if (ret)
			break;
		fg_wait_block(block, &when);
		if (offset < fg_w->payload) {
			uint64_t kept = fg_w->payload - offset;

			memset(fg_bytes(block, where) + offset, value, piece < kept ? piece : kept);
		}
		stream->tail =
		    when + (uint64_t)((double)piece / fg_w->gpu[device].hbm_bytes_per_ns);
		addr += piece;
		bytes -= piece;
	}
	fg_unlock();
	return ret;
}
