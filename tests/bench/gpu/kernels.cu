// SPDX-License-Identifier: Apache-2.0
// What needs kernels of our own: moves under a running kernel, the cost of faults, use in
// place, graph capture beside another thread, and what a launch costs. One JSON line each;
// with the argument "launches" the last alone.
//   nvcc -O2 -std=c++17 -arch=native -o kernels kernels.cu && ./kernels
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cuda_runtime.h>
#include <thread>
#include <vector>
#define CK(x)                                                                                      \
	do {                                                                                       \
		cudaError_t e_ = (x);                                                              \
		if (e_) {                                                                          \
			printf("{\"step\": \"error\", \"holds\": false, \"what\": \"%s: %s\"}\n",  \
			       #x, cudaGetErrorName(e_));                                          \
			exit(1);                                                                   \
		}                                                                                  \
	} while (0)
static const size_t CH = 2u << 20;
static const cudaMemLocation HOST = {cudaMemLocationTypeHost, 0},
			     DEV = {cudaMemLocationTypeDevice, 0};
static double now()
{
	return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch())
	    .count();
}

__global__ void add(unsigned *p, size_t n, int rounds)
{
	for (int r = 0; r < rounds; r++)
		for (size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < n;
		     i += (size_t)gridDim.x * blockDim.x)
			p[i] += 1;
}
__global__ void touch(const char *p, size_t bytes, size_t step, unsigned *out)
{
	unsigned sum = 0;
	for (size_t i = (blockIdx.x * (size_t)blockDim.x + threadIdx.x) * step; i < bytes;
	     i += (size_t)gridDim.x * blockDim.x * step)
		sum += *(const unsigned *)(p + i);
	if (sum == 0x12345678u)
		*out = sum;
}

static void race()
{
	size_t n = 32 * CH / 4;
	unsigned *p;
	long moves = 0;
	cudaStream_t s, m;
	CK(cudaMallocManaged(&p, 32 * CH));
	CK(cudaMemset(p, 0, 32 * CH));
	CK(cudaDeviceSynchronize());
	CK(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
	CK(cudaStreamCreateWithFlags(&m, cudaStreamNonBlocking));
	std::atomic<bool> stop{false};
	std::thread mover([&] {
		unsigned x = 1;
		while (!stop) {
			x = x * 1664525u + 1013904223u;
			cudaMemPrefetchAsync((char *)p + (x >> 8) % 32 * CH, CH,
					     x & 128 ? HOST : DEV, 0, m);
			cudaStreamSynchronize(m);
			moves++;
		}
	});
	int total = 0;
	double end = now() + 4;
	while (now() < end) {
		add<<<264, 256, 0, s>>>(p, n, 20);
		total += 20;
		CK(cudaStreamSynchronize(s));
	}
	stop = true;
	mover.join();
	size_t wrong = 0;
	for (size_t i = 0; i < n; i++)
		wrong += p[i] != (unsigned)total;
	printf("{\"step\": \"race\", \"rounds\": %d, \"moves_under_kernels\": %ld, "
	       "\"wrong_words\": %zu, \"holds\": %s}\n",
	       total, moves, wrong, wrong || !moves ? "false" : "true");
	fflush(stdout);
	CK(cudaFree(p));
}

static double run(const char *p, size_t bytes, size_t step, unsigned *out)
{
	double t = now();
	touch<<<264, 256>>>(p, bytes, step, out);
	CK(cudaDeviceSynchronize());
	return now() - t;
}

static void faults()
{
	const size_t N = 128;
	char *p;
	unsigned *out;
	CK(cudaMalloc(&out, 4));
	CK(cudaMallocManaged(&p, N * CH));
	run(p, 4, 4, out);
	for (size_t step : {CH, (size_t)65536, (size_t)4096, (size_t)128}) {
		CK(cudaMemset(p, 1, N * CH));
		CK(cudaMemPrefetchAsync(p, N * CH, HOST, 0, 0));
		CK(cudaDeviceSynchronize());
		double cold = run(p, N * CH, step, out), warm = run(p, N * CH, step, out);
		printf("{\"step\": \"faults\", \"one_word_each\": %zu, \"us_a_chunk\": %.1f, "
		       "\"again\": %.2f}\n",
		       step, cold / N * 1e6, warm / N * 1e6);
		fflush(stdout);
	}
	CK(cudaMemPrefetchAsync(p, N * CH, HOST, 0, 0));
	CK(cudaDeviceSynchronize());
	CK(cudaMemAdvise(p, N * CH, cudaMemAdviseSetPreferredLocation, HOST));
	CK(cudaMemAdvise(p, N * CH, cudaMemAdviseSetAccessedBy, DEV));
	for (size_t step : {(size_t)4, (size_t)128, (size_t)4096}) {
		double t = run(p, N * CH, step, out);
		printf("{\"step\": \"in_place_on_host\", \"one_word_each\": %zu, \"us_a_chunk\": "
		       "%.1f, \"useful_GB_s\": %.2f}\n",
		       step, t / N * 1e6, N * CH / step * 4 / t / 1e9);
		fflush(stdout);
	}
	CK(cudaFree(p));
}

// A thread that does what the client library's does, while another captures a graph.
static void capture(const char *name, cudaStreamCaptureMode mode, bool relaxed, int what)
{
	char *p;
	cudaStream_t s, m;
	cudaEvent_t e;
	cudaGraph_t g = nullptr;
	unsigned *out;
	cudaError_t other = cudaSuccess;
	CK(cudaMalloc(&out, 4));
	CK(cudaMallocManaged(&p, CH));
	CK(cudaMemset(p, 0, CH));
	CK(cudaDeviceSynchronize());
	CK(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
	CK(cudaStreamCreateWithFlags(&m, cudaStreamNonBlocking));
	CK(cudaEventCreateWithFlags(&e, cudaEventDisableTiming));
	CK(cudaEventRecord(e, m));
	CK(cudaDeviceSynchronize());
	cudaError_t begin = cudaStreamBeginCapture(s, mode);
	touch<<<1, 32, 0, s>>>(p, CH, 4096, out);
	std::thread([&] {
		cudaStreamCaptureMode own = cudaStreamCaptureModeRelaxed;
		size_t f, t;
		cudaSetDevice(0);
		if (relaxed)
			cudaThreadExchangeStreamCaptureMode(&own);
		other = what == 0   ? cudaEventQuery(e)
			: what == 1 ? cudaMemPrefetchAsync(p, CH, HOST, 0, m)
				    : cudaMemGetInfo(&f, &t);
	}).join();
	cudaError_t ended = cudaStreamEndCapture(s, &g);
	cudaGetLastError();
	printf("{\"step\": \"capture\", \"how\": \"%s\", \"relaxed_thread\": %d, \"begin\": "
	       "\"%s\", \"other_thread\": \"%s\", \"capture\": \"%s\"%s}\n",
	       name, relaxed, cudaGetErrorName(begin), cudaGetErrorName(other),
	       cudaGetErrorName(ended),
	       !relaxed ? ""
	       : ended	? ", \"holds\": false"
			: ", \"holds\": true");
	fflush(stdout);
}

// Microseconds a launch takes its thread, with an address of memory that a shim would track.
static void launches()
{
	const int N = 20000;
	char *p;
	unsigned *out;
	double best = 1e9;
	CK(cudaMalloc(&out, 4));
	CK(cudaMalloc(&p, 64 * CH));
	CK(cudaMemset(p, 0, 64 * CH));
	CK(cudaDeviceSynchronize());
	std::this_thread::sleep_for(std::chrono::seconds(1)); // a shim's thread finds its daemon
	for (int r = 0; r < 5; r++) {
		double t = now();
		for (int i = 0; i < N; i++)
			touch<<<1, 32>>>(p + i % 64 * CH, 4, 4, out);
		double took = (now() - t) / N * 1e6;
		CK(cudaDeviceSynchronize());
		best = took < best ? took : best;
	}
	const char *mode = getenv("TIERD_GPU");
	printf("{\"step\": \"launches\", \"mode\": \"%s\", \"us_a_launch\": %.2f}\n",
	       mode ? mode : "none", best);
	fflush(stdout);
}

int main(int argc, char **argv)
{
	static const char *what[] = {"event query", "prefetch", "mem info"};
	if (argc < 2) {
		race();
		faults();
		for (int w = 0; w < 3; w++)
			for (int r = 0; r < 2; r++)
				capture(what[w], cudaStreamCaptureModeGlobal, r, w);
		capture("event query, thread-local capture", cudaStreamCaptureModeThreadLocal,
			false, 0);
	}
	launches();
	return 0;
}
