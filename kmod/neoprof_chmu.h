/* SPDX-License-Identifier: GPL-2.0-only */
/* What the layout of a CHMU and that of the vendor block share. */
#ifndef NEOPROF_CHMU_H
#define NEOPROF_CHMU_H

#include "neoprof.h"
#include "neoprof_regs.h"

#include <linux/bitfield.h>

/* A register of this card's instance; the header numbers those of the first one. */
#define NEOPROF_CHMU_AT(card, name) ((card)->base + NEOPROF_CHMU0_##name - NEOPROF_CHMU0_CAP0)

static inline bool neoprof_chmu_has_vendor(const struct neoprof_card *card)
{
	return card->geometry.features & TIERD_CARD_HAS_COUNTERS;
}

static inline int neoprof_chmu_refuse(struct neoprof_card *card, const char *why)
{
	strscpy(card->why, why, sizeof(card->why));
	return -ENODEV;
}

/* neoprof_vendor.c */
int neoprof_vendor_identify(struct neoprof_card *card);
int neoprof_vendor_profile(struct neoprof_card *card, struct tierd_profile *profile);
int neoprof_vendor_requests(struct neoprof_card *card, u64 *requests);

#endif
