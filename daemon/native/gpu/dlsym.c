/* SPDX-License-Identifier: Apache-2.0 */
/* dlsym as the C library has it, also where a shim of that name stands before it. */
#include <dlfcn.h>
#include <stddef.h>

typedef void *(*finder)(void *, const char *);

finder tg_next_dlsym(void);
void *tg_real_dlsym(void *library, const char *name);

static void *nothing(void *library, const char *name)
{
	(void)library;
	(void)name;
	return NULL;
}

finder tg_next_dlsym(void)
{
	static finder next;

	if (!next) {
		/* Since glibc 2.34 in libc itself; the older name stays for both. */
		void *found = dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.34");

		if (!found)
			found = dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.2.5");
		if (!found)
			found = dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.17");
		__extension__ next = found ? (finder)found : nothing;
	}
	return next;
}

void *tg_real_dlsym(void *library, const char *name)
{
	return tg_next_dlsym()(library, name);
}
