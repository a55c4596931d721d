/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The page tables in use, read from a vCPU's registers.
 * Owns: QEMU's register interface. Called by the vCPU's own thread, from a callback that was
 * registered with QEMU_PLUGIN_CB_R_REGS.
 */
#ifndef TIERD_LAB_REGISTERS_H
#define TIERD_LAB_REGISTERS_H

#include <stdint.h>

/*
 * The root of the user's page tables: CR3 without the process context number and without the bit
 * that page table isolation flips. 0 if QEMU does not tell it.
 */
uint64_t registers_root(void);

#endif
