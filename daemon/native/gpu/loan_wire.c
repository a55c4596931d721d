/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is said of loans to the daemon, and heard from it. Memory is reported before it is taken
 * and after it was freed, so that the daemon knows whose it is that it sees used there.
 */
#include "client.h"

void tg_loan_say(struct tg_client *c, struct tg_loan_account *loan)
{
	loan->news = true;
	c->loans.said++;
	tg_link_wake(c);
}

void tg_loan_say_again(struct tg_client *c)
{
	for (int device = 0; device < c->devices; device++) {
		struct tg_loan_account *loan = &c->loans.at[device];

		if (loan->wanted || loan->held)
			tg_loan_say(c, loan);
	}
}

void tg_loan_say_used(struct tg_client *c)
{
	for (int device = 0; device < c->devices; device++)
		if (c->loans.at[device].used)
			tg_loan_say(c, &c->loans.at[device]);
}

uint32_t tg_loan_drain(struct tg_client *c, struct tgw_loan *out, uint32_t most)
{
	uint32_t count = 0;

	if (c->loans.drained == c->loans.said)
		return 0;
	for (int device = 0; device < c->devices && count < most; device++) {
		struct tg_loan_account *loan = &c->loans.at[device];

		if (!loan->news || c->number_of[device] < 0)
			continue;
		loan->news = loan->used = false;
		out[count++] = (struct tgw_loan){
		    .device = c->number_of[device],
		    .wanted = loan->wanted,
		    .held = loan->held,
		};
	}
	c->loans.drained = c->loans.said;
	return count;
}

/* By the thread that drained the last message: it is in the socket now. */
void tg_loan_sent(struct tg_client *c)
{
	if (c->loans.sent == c->loans.drained)
		return;
	pthread_mutex_lock(&c->lock);
	c->loans.sent = c->loans.drained;
	pthread_cond_broadcast(&c->loans.told);
	pthread_mutex_unlock(&c->lock);
}

void tg_loan_heard(struct tg_client *c, const struct tgw_grant *grants, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++) {
		int device = tg_ordinal(c, grants[i].device);

		if (device < 0)
			continue;
		if (grants[i].due_ms)
			c->loans.due_ms = grants[i].due_ms;
		tg_loan_regrant(c, &c->loans.at[device], grants[i].granted);
	}
}

/* No daemon, no grant; the time to give back runs. */
void tg_loan_detach(struct tg_client *c)
{
	for (int device = 0; device < c->devices; device++) {
		struct tg_loan_account *loan = &c->loans.at[device];

		if (loan->granted || loan->held)
			tg_loan_regrant(c, loan, 0);
	}
	pthread_cond_broadcast(&c->loans.told);
}
