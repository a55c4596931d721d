/* SPDX-License-Identifier: Apache-2.0 */
#include "registers.h"

#include "qemu_api.h"

#include <stdbool.h>
#include <string.h>

/* Two arrays of GLib, which QEMU brings along. */
struct array {
	char *data;
	unsigned int len;
};

struct array *g_byte_array_new(void);
struct array *g_byte_array_set_size(struct array *array, unsigned int length);
char *g_array_free(struct array *array, int free_segment);

uint64_t registers_root(void)
{
	static _Thread_local struct qemu_plugin_register *cr3;
	static _Thread_local struct array *value;
	uint64_t root = 0;

	if (!value) {
		struct array *list = qemu_plugin_get_registers();
		const qemu_plugin_reg_descriptor *all = (const void *)list->data;

		for (unsigned int i = 0; i < list->len; i++)
			if (!strcmp(all[i].name, "cr3"))
				cr3 = all[i].handle;
		g_array_free(list, 1);
		value = g_byte_array_new();
	}
	if (!cr3)
		return 0;
	g_byte_array_set_size(value, 0);
	if (qemu_plugin_read_register(cr3, value) <= 0)
		return 0;
	memcpy(&root, value->data, value->len < sizeof(root) ? value->len : sizeof(root));
	return root & 0x7fffffffffffe000u;
}
