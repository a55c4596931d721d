/* SPDX-License-Identifier: Apache-2.0 */
/* The accounts of loans: what is wanted, granted and held of each neighbour, and what is due. */
#include "client.h"

#include <errno.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

void tg_loans_open(struct tg_client *c)
{
	c->loans.fd = -1;
	c->loans.due_ms = TG_DUE_MS;
	pthread_cond_init(&c->loans.told, NULL);
}

void tg_loans_close(struct tg_client *c)
{
	tg_loan_free_all(c);
	if (c->loans.fd >= 0)
		close(c->loans.fd);
	pthread_cond_destroy(&c->loans.told);
}

struct tg_loan_account *tg_loan_account(struct tg_client *c, int device)
{
	if (device < 0 || device >= c->devices || device == tg_home(c))
		return NULL;
	return &c->loans.at[device];
}

int tg_loan_served(const struct tg_client *c, int device)
{
	bool numbered = false;

	for (int i = 0; i < TGW_MAX_GPUS; i++)
		numbered |= c->number_of[i] >= 0;
	if (!c->attached || !numbered)
		return -ENOTCONN;
	return c->number_of[device] < 0 ? -ENODEV : 0;
}

static void signal_change(struct tg_client *c)
{
	uint64_t one = 1;
	ssize_t ret;

	if (c->loans.fd < 0)
		return;
	ret = write(c->loans.fd, &one, sizeof(one));
	(void)ret; /* full: it is readable already */
}

/* Steps that were taken are over. */
static void settle(struct tg_loan_account *loan)
{
	while (loan->steps && loan->held <= loan->step[0].granted)
		memmove(&loan->step[0], &loan->step[1], --loan->steps * sizeof(loan->step[0]));
}

void tg_loan_regrant(struct tg_client *c, struct tg_loan_account *loan, uint64_t granted)
{
	struct tg_loan_step *last;

	loan->granted = granted;
	while (loan->steps && loan->step[loan->steps - 1].granted < granted)
		loan->steps--; /* more is granted again */
	last = loan->steps ? &loan->step[loan->steps - 1] : NULL;
	if (loan->held <= granted)
		loan->steps = 0;
	else if (last && (loan->steps == TG_LOAN_STEPS || last->granted == granted))
		last->granted = granted; /* due as it was: rather too soon */
	else
		loan->step[loan->steps++] = (struct tg_loan_step){
		    .granted = granted,
		    .due_ns = tg_now(c) + c->loans.due_ms * 1000000ull,
		};
	settle(loan);
	signal_change(c);
}

void tg_loan_take(struct tg_client *c, struct tg_loan_account *loan, size_t bytes)
{
	loan->held += bytes;
	tg_loan_say(c, loan);
}

void tg_loan_give(struct tg_client *c, struct tg_loan_account *loan, size_t bytes)
{
	loan->held -= bytes;
	settle(loan);
	tg_loan_say(c, loan);
}

uint64_t tg_loan_keep(const struct tg_loan_account *loan, uint64_t now)
{
	uint64_t keep = UINT64_MAX;

	for (uint32_t i = 0; i < loan->steps && loan->step[i].due_ns < now; i++)
		keep = loan->step[i].granted;
	return keep;
}

int tg_loan_want(struct tg_client *c, int device, uint64_t bytes)
{
	struct tg_loan_account *loan;
	int ret = -EINVAL;

	pthread_mutex_lock(&c->lock);
	loan = tg_loan_account(c, device);
	if (loan) {
		loan->wanted = bytes;
		tg_loan_say(c, loan);
		ret = tg_loan_served(c, device);
	}
	pthread_mutex_unlock(&c->lock);
	return ret;
}

int tg_loan_used(struct tg_client *c, int device)
{
	struct tg_loan_account *loan;

	pthread_mutex_lock(&c->lock);
	loan = tg_loan_account(c, device);
	if (loan)
		loan->used = true; /* is said with the next sign of life */
	pthread_mutex_unlock(&c->lock);
	return loan ? 0 : -EINVAL;
}

int tg_loan_state(struct tg_client *c, int device, struct tg_loan *out)
{
	const struct tg_loan_account *loan;
	int ret = -EINVAL;

	pthread_mutex_lock(&c->lock);
	loan = tg_loan_account(c, device);
	if (loan) {
		*out = (struct tg_loan){
		    .wanted = loan->wanted,
		    .granted = loan->granted,
		    .held = loan->held,
		    .due_ns = loan->steps ? loan->step[0].due_ns : 0,
		};
		ret = tg_loan_served(c, device);
	}
	pthread_mutex_unlock(&c->lock);
	return ret;
}

int tg_loan_fd(struct tg_client *c)
{
	int fd;

	pthread_mutex_lock(&c->lock);
	if (c->loans.fd < 0)
		c->loans.fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	fd = c->loans.fd < 0 ? -errno : c->loans.fd;
	pthread_mutex_unlock(&c->lock);
	return fd;
}
