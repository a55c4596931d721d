/* SPDX-License-Identifier: Apache-2.0 */
/* The stand-in driver's own directory of entry points ("CUDA Driver API": entry point access). */
#include "driver.h"

#include <string.h>

FG_API CUresult cuGetErrorName(CUresult error, const char **name)
{
	*name = error ? "CUDA_ERROR" : "CUDA_SUCCESS";
	return CUDA_SUCCESS;
}

#define DECLARE(name) extern char name##_symbol __asm__(#name);
CU_NAMES(DECLARE)

static const struct {
	const char *name;
	void *entry;
} directory[] = {
#define ENTRY(name) {#name, &name##_symbol},
    CU_NAMES(ENTRY)
#undef ENTRY
};

static void *look_up(const char *name, const char *suffix)
{
	char whole[64];

	for (size_t i = 0; i < sizeof(directory) / sizeof(directory[0]); i++) {
		size_t length = strlen(name);

		if (length + strlen(suffix) >= sizeof(whole))
			return NULL;
		memcpy(whole, name, length);
		strcpy(whole + length, suffix);
		if (!strcmp(directory[i].name, whole))
			return directory[i].entry;
	}
	return NULL;
}

/* Names come without a version suffix; the newest of the asked version is given. */
FG_API CUresult cuGetProcAddress_v2(const char *name, void **entry, int version,
				    unsigned long long flags, int *status)
{
	(void)flags;
	*entry =
	    version >= 12020 || (strcmp(name, "cuMemAdvise") && strcmp(name, "cuMemPrefetchAsync"))
		? look_up(name, "_v2")
		: NULL;
	if (!*entry)
		*entry = look_up(name, "");
	if (status)
		*status = *entry ? 0 : 1;
	return *entry ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

FG_API CUresult cuGetProcAddress(const char *name, void **entry, int version,
				 unsigned long long flags)
{
	return cuGetProcAddress_v2(name, entry, version, flags, NULL);
}
