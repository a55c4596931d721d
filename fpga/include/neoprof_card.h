/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One NeoProf card behind a C interface. Two libraries have it: libneoprof-rtl.so (the Verilated
 * RTL) and libneoprof-model.so (the reference model). What software sees of the card is the same;
 * the register map is neoprof_regs.h, docs/hardware/README.md explains it.
 *
 * Functions return 0 or a negative errno. A card is used by one thread at a time.
 */
#ifndef NEOPROF_CARD_H
#define NEOPROF_CARD_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A request: device physical address (44 bits), and: */
#define NP_REQ_WRITE (1ull << 62) /* it writes */
#define NP_REQ_NONE (1ull << 63)  /* the channel is idle in this cycle */
#define NP_REQ_ADDR_MASK ((1ull << 44) - 1)

typedef struct np_card np_card;

/* "rtl" or "model". */
const char *np_card_kind(void);

/*
 * Open a card that has just left its hardware reset and finished initialising. log2_width: counters
 * in a row, or entries of the table, which has a library of its own of each kind (full size: 17);
 * ring_size: slots of the hot list, a power of 2; cycles_per_100us: memory clock. 0 stands for the
 * full-size card's value (19, 4096, 40000). The RTL is built with one geometry: any other gives
 * NULL with errno EINVAL. Out of memory: ENOMEM.
 */
np_card *np_card_open(unsigned log2_width, unsigned ring_size, unsigned cycles_per_100us);
void np_card_close(np_card *card);

/*
 * Put requests on the channels, two a memory clock: even elements on channel 0, odd ones on
 * channel 1. An odd number leaves channel 1 idle in the last cycle.
 */
int np_card_push(np_card *card, const uint64_t *requests, size_t count);

/* Let memory clock cycles pass without requests. */
int np_card_step(np_card *card, uint64_t cycles);

/*
 * Register access as a host makes it: size 1, 2, 4 or 8, offset a multiple of size, else -EINVAL
 * and the card sees nothing. -EIO: the card answered with a bus error; a read then gives 0.
 * Commands that a write starts are on their way when it returns: poll the status registers, or
 * call np_card_settle(). The model carries them out at once.
 */
int np_card_read(np_card *card, uint32_t offset, unsigned size, uint64_t *value);
int np_card_write(np_card *card, uint32_t offset, unsigned size, uint64_t value);

/* Let time pass until no operation is in progress or pending; -ETIMEDOUT if one never ends. */
int np_card_settle(np_card *card);

/* Pulse the hardware reset and wait for the initialisation. */
int np_card_reset(np_card *card);

/* Level of the interrupt line, 0 or 1. */
int np_card_irq(np_card *card);

/* Memory clock cycles since the card was opened. */
uint64_t np_card_cycles(const np_card *card);

/*
 * For tests, not for software on a host: the present value of one counter of the sketch, or of an
 * entry of the table (row 0: count; the others: np_table_model.h). All requests pushed before are
 * in it after a call of np_card_settle().
 */
int np_card_peek(np_card *card, unsigned row, uint32_t index, uint32_t *count);

#ifdef __cplusplus
}
#endif

#endif /* NEOPROF_CARD_H */
