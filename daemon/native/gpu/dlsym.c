/* SPDX-License-Identifier: Apache-2.0 */
/* dlsym as the C library has it, also where a shim of that name stands before it. */
#include <dlfcn.h>
#include <stddef.h>

void *tg_real_dlsym(void *library, const char *name);

void *tg_real_dlsym(void *library, const char *name)
{
	static void *(*real)(void *, const char *);

	if (!real) {
		/* Since glibc 2.34 in libc itself; the older name stays for both. */
		void *found = dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.34");

		if (!found)
			found = dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.2.5");
		if (!found)
			found = dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.17");
		__extension__ real = (void *(*)(void *, const char *))found;
	}
	return real ? real(library, name) : NULL;
}
