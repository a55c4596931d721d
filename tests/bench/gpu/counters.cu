// SPDX-License-Identifier: Apache-2.0
// What the driver tells of managed memory by CUPTI's unified-memory counters ("CUPTI",
// Activity API, CUpti_ActivityUnifiedMemoryCounter3): moves with their cause, faults with
// their access, how late, and at what cost. One JSON line each.
// Counters tell nothing unless they are started before the process's first context.
//   nvcc -O2 -std=c++17 -arch=native -o counters counters.cu && ./counters off && ./counters on
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cuda_runtime.h>
#include <dlfcn.h>
#include <map>
#include <mutex>
#include <set>
#include <string>
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

static const size_t CH = 2u << 20, N = 64;
static const cudaMemLocation HOST = {cudaMemLocationTypeHost, 0},
			     DEV = {cudaMemLocationTypeDevice, 0};

struct Config { // CUpti_ActivityUnifiedMemoryCounterConfig
	uint32_t scope, kind, device, enable;
};
struct Record { // CUpti_ActivityUnifiedMemoryCounter3
	uint32_t kind, counter;
	uint64_t value, start, end, address;
	uint32_t from, to, stream, process, flags, pad;
	uint64_t processors[5];
} __attribute__((packed, aligned(8)));
static const uint32_t KIND = 25; // CUPTI_ACTIVITY_KIND_UNIFIED_MEMORY_COUNTER

static struct {
	void *library;
	int (*callbacks)(void (*)(uint8_t **, size_t *, size_t *),
			 void (*)(void *, uint32_t, uint8_t *, size_t, size_t));
	int (*configure)(Config *, uint32_t), (*enable)(uint32_t), (*disable)(uint32_t),
	    (*period)(uint32_t), (*flush)(uint32_t);
	int (*next)(uint8_t *, size_t, void **), (*timestamp)(uint64_t *);
} cupti;
static std::mutex lock;
struct Sum {
	long records = 0;
	uint64_t value = 0, late = 0;
	std::set<uint64_t> chunks;
};
static std::map<std::string, Sum> seen;

static double now()
{
	return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch())
	    .count();
}

static void give(uint8_t **buffer, size_t *size, size_t *most)
{
	*size = 1 << 20;
	*buffer = (uint8_t *)aligned_alloc(8, *size);
	*most = 0;
}

static void take(void *, uint32_t, uint8_t *buffer, size_t, size_t valid)
{
	static const char *counter[] = {"?",	      "to_gpu",	    "to_host",
					"cpu_fault",  "gpu_fault",  "thrashing",
					"throttling", "remote_map", "between"};
	static const char *cause[] = {"unknown",  "user",     "coherence",
				      "prefetch", "eviction", "access_counters"};
	static const char *access[] = {"unknown", "read", "write", "atomic", "prefetch"};
	void *record = nullptr;
	uint64_t at = 0;
	cupti.timestamp(&at);
	std::lock_guard<std::mutex> hold(lock);
	while (!cupti.next(buffer, valid, &record)) {
		Record *r = (Record *)record;
		if (r->kind != KIND)
			continue;
		std::string name = counter[r->counter < 9 ? r->counter : 0];
		bool move = r->counter == 1 || r->counter == 2 || r->counter == 8;
		name += std::string(" ") + (move ? cause[r->flags < 6 ? r->flags : 0]
						 : access[r->flags < 5 ? r->flags : 0]);
		Sum &s = seen[name];
		s.records++;
		s.value += r->value;
		s.chunks.insert(r->address / CH);
		if (at > r->start && at - r->start > s.late)
			s.late = at - r->start;
	}
	free(buffer);
}

static void say(const char *step)
{
	cupti.flush(1);
	std::lock_guard<std::mutex> hold(lock);
	printf("{\"step\": \"counters %s\", \"told\": {", step);
	const char *between = "";
	for (auto &[name, s] : seen) {
		printf("%s\"%s\": {\"records\": %ld, \"value\": %llu, \"chunks\": %zu, "
		       "\"latest_ms\": %.1f}",
		       between, name.c_str(), s.records, (unsigned long long)s.value,
		       s.chunks.size(), s.late / 1e6);
		between = ", ";
	}
	printf("}}\n");
	fflush(stdout);
	seen.clear();
}

__global__ void read(const char *p, size_t bytes, unsigned *out)
{
	unsigned sum = 0;
	for (size_t i = (blockIdx.x * (size_t)blockDim.x + threadIdx.x) * 128; i < bytes;
	     i += (size_t)gridDim.x * blockDim.x * 128)
		sum += *(const unsigned *)(p + i);
	if (sum == 0x12345678u)
		*out = sum;
}
__global__ void write(char *p, size_t bytes)
{
	for (size_t i = (blockIdx.x * (size_t)blockDim.x + threadIdx.x) * 128; i < bytes;
	     i += (size_t)gridDim.x * blockDim.x * 128)
		*(unsigned *)(p + i) += 1;
}

static char *p;
static unsigned *out;
static double timed(void (*act)())
{
	double t = now();
	act();
	CK(cudaDeviceSynchronize());
	return (now() - t) / N * 1e6;
}
static void to_host()
{
	CK(cudaMemPrefetchAsync(p, N * CH, HOST, 0, 0));
}
static void to_gpu()
{
	CK(cudaMemPrefetchAsync(p, N * CH, DEV, 0, 0));
}
static void each_to_host()
{
	for (size_t i = 0; i < N; i++)
		CK(cudaMemPrefetchAsync(p + i * CH, CH, HOST, 0, 0));
}
static void each_to_gpu()
{
	for (size_t i = 0; i < N; i++)
		CK(cudaMemPrefetchAsync(p + i * CH, CH, DEV, 0, 0));
}
static void reading()
{
	read<<<264, 256>>>(p, N * CH, out);
}
static void writing()
{
	write<<<264, 256>>>(p, N * CH);
}
static void launching()
{
	for (int i = 0; i < 20000; i++)
		read<<<1, 32>>>(p, 4, out);
}
static void mostly()
{
	CK(cudaMemAdvise(p, N * CH, cudaMemAdviseSetReadMostly, DEV));
}
static void not_mostly()
{
	CK(cudaMemAdvise(p, N * CH, cudaMemAdviseUnsetReadMostly, DEV));
}
static void drop_copy()
{
	for (size_t i = 0; i < N; i++) {
		CK(cudaMemAdvise(p + i * CH, CH, cudaMemAdviseSetPreferredLocation, HOST));
		CK(cudaMemAdvise(p + i * CH, CH, cudaMemAdviseUnsetReadMostly, DEV));
		CK(cudaMemAdvise(p + i * CH, CH, cudaMemAdviseUnsetPreferredLocation, HOST));
	}
}

static void costs(const char *how)
{
	timed(to_host);
	double h = 0, g = 0, f = 0;
	timed(to_gpu);
	h = timed(each_to_host);
	g = timed(each_to_gpu);
	timed(to_host);
	f = timed(reading);
	double l = timed(launching) * N / 20000;
	printf("{\"step\": \"counters cost\", \"counters\": \"%s\", \"to_host_us\": %.1f, "
	       "\"to_gpu_us\": %.1f, \"fault_us\": %.1f, \"launch_and_run_us\": %.2f}\n",
	       how, h, g, f, l);
	fflush(stdout);
}

static void stay()
{
	timed(to_host);
	timed(mostly);
	double copy = timed(to_gpu), reads = timed(reading), drop = timed(drop_copy);
	timed(mostly);
	timed(to_gpu);
	double writes = timed(writing), again = timed(writing), dropped = timed(drop_copy);
	timed(to_host);
	timed(to_gpu);
	double plain = timed(writing);
	printf("{\"step\": \"copies kept\", \"fetch_us\": %.1f, \"read_us\": %.2f, "
	       "\"drop_clean_us\": %.1f, \"first_write_us\": %.1f, \"write_us\": %.2f, "
	       "\"write_without_us\": %.2f, \"drop_written_us\": %.1f}\n",
	       copy, reads, drop, writes, again, plain, dropped);
	fflush(stdout);
	timed(not_mostly);
}

template <class F> static bool find(F &f, const char *name)
{
	f = (F)dlsym(cupti.library, name);
	return f;
}

static bool open_cupti()
{
	static const char *names[] = {"libcupti.so.13",
				      "/usr/local/cuda/targets/x86_64-linux/lib/libcupti.so",
				      "/usr/local/cuda/extras/CUPTI/lib64/libcupti.so"};

	for (const char *name : names)
		if (!cupti.library)
			cupti.library = dlopen(name, RTLD_NOW);
	return cupti.library && find(cupti.callbacks, "cuptiActivityRegisterCallbacks") &&
	       find(cupti.configure, "cuptiActivityConfigureUnifiedMemoryCounter") &&
	       find(cupti.enable, "cuptiActivityEnable") &&
	       find(cupti.period, "cuptiActivityFlushPeriod") &&
	       find(cupti.flush, "cuptiActivityFlushAll") &&
	       find(cupti.next, "cuptiActivityGetNextRecord") &&
	       find(cupti.timestamp, "cuptiGetTimestamp");
}

static bool start()
{
	auto init = (int (*)(unsigned))dlsym(dlopen("libcuda.so.1", RTLD_NOW), "cuInit");
	Config config[4];

	for (uint32_t i = 0; i < 4; i++)
		config[i] = {2, i + 1, 0, 1};
	return !cupti.callbacks(give, take) && !init(0) && !cupti.configure(config, 4) &&
	       !cupti.enable(KIND) && !cupti.period(5);
}

static void tell(const char *self)
{
	timed(to_host);
	say("before");
	timed(to_gpu);
	say("prefetch to gpu");
	timed(to_host);
	say("prefetch to host");
	timed(reading);
	say("reads of what is on the host");
	timed(to_host);
	timed(writing);
	say("writes of what is on the host");
	timed(to_gpu);
	say("back");
	std::string other = std::string(self) + " hog 64";
	int code = system(other.c_str());
	say("another process allocates");
	printf("{\"step\": \"other process\", \"holds\": %s}\n", code ? "false" : "true");
}

int main(int argc, char **argv)
{
	std::string what = argc > 1 ? argv[1] : "off";

	if (what == "hog") { // takes all that is free and as many MiB more
		size_t free_now, total;
		void *q;
		CK(cudaMemGetInfo(&free_now, &total));
		CK(cudaMalloc(&q, free_now + (strtoull(argv[2], nullptr, 10) << 20)));
		return 0;
	}
	if (what == "on" && !open_cupti()) {
		printf("{\"step\": \"counters\", \"absent\": \"CUPTI\"}\n");
		return 0;
	}
	if (what == "on" && !start()) {
		printf("{\"step\": \"counters\", \"holds\": false}\n");
		return 1;
	}
	CK(cudaMalloc(&out, 4));
	CK(cudaMallocManaged(&p, N * CH));
	CK(cudaMemset(p, 1, N * CH));
	CK(cudaDeviceSynchronize());
	costs(what.c_str());
	costs(what.c_str());
	if (what == "on")
		tell(argv[0]);
	else
		stay();
	return 0;
}
