/* SPDX-License-Identifier: Apache-2.0 */
#include "options.h"

#include "place.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>

struct options opt = {
    .size = 1200ul << 20,
    .leave_free = 100ul << 20,
    .hot_access = 0.9,
    .seconds = 60,
    .interval = 1,
    .rate = 300000,
    .threads = 1,
    .fast_node = -1,
    .slow_node = -1,
    .seed = 1,
    .check = true,
};
static double hot_share = 0.1;

static size_t parse_size(const char *text)
{
	char *end;
	double value = strtod(text, &end);

	switch (*end) {
	case 'G':
		value *= 1024;
		/* fall through */
	case 'M':
		value *= 1024;
		/* fall through */
	case 'K':
		value *= 1024;
	}
	if (value < 1 || end == text) {
		fprintf(stderr, "hotset: %s is not a size (K, M or G behind a number)\n", text);
		exit(2);
	}
	return (size_t)value;
}

static void usage(FILE *out)
{
	fputs("usage: hotset [options]\n"
	      "  --size SIZE          memory in all (1200M)\n"
	      "  --hot-share X        share of the pages that are hot (0.1)\n"
	      "  --hot-access X       share of the updates that go there (0.9)\n"
	      "  --scattered          hot pages at random places (else one contiguous area)\n"
	      "  --move-after S       another hot set every S seconds (0: never)\n"
	      "  --threads N          updating threads (1)\n"
	      "  --rate N             updates a second in all, 0 for no pause (300000)\n"
	      "  --seconds S          how long (60)\n"
	      "  --interval S         a report every S seconds (1)\n"
	      "  --fast-node N --slow-node M   hot pages start on M, cold ones on N\n"
	      "  --leave-free SIZE    ... as long as N keeps this much free (100M)\n"
	      "  --huge               2 MiB pages where the kernel has them (else 4 KiB only)\n"
	      "  --hot-file PATH      write the hot page numbers there\n"
	      "  --map                the first and the last report tell of every page\n"
	      "  --seed N             another sequence\n"
	      "  --no-check           skip the checksum at the end\n",
	      out);
}

void options_parse(int argc, char **argv)
{
	static const struct option names[] = {
	    {"size", 1, 0, 's'},
	    {"hot-share", 1, 0, 'h'},
	    {"hot-access", 1, 0, 'a'},
	    {"scattered", 0, 0, 'x'},
	    {"move-after", 1, 0, 'm'},
	    {"threads", 1, 0, 't'},
	    {"rate", 1, 0, 'r'},
	    {"seconds", 1, 0, 'd'},
	    {"interval", 1, 0, 'i'},
	    {"fast-node", 1, 0, 'f'},
	    {"slow-node", 1, 0, 'l'},
	    {"leave-free", 1, 0, 'e'},
	    {"huge", 0, 0, 'g'},
	    {"hot-file", 1, 0, 'o'},
	    {"seed", 1, 0, 'n'},
	    {"no-check", 0, 0, 'c'},
	    {"map", 0, 0, 'p'},
	    {"help", 0, 0, '?'},
	    {0, 0, 0, 0},
	};
	int c;

	while ((c = getopt_long(argc, argv, "", names, NULL)) != -1) {
		switch (c) {
		case 's':
			opt.size = parse_size(optarg);
			break;
		case 'h':
			hot_share = atof(optarg);
			break;
		case 'a':
			opt.hot_access = atof(optarg);
			break;
		case 'x':
			opt.scattered = true;
			break;
		case 'm':
			opt.move_after = atof(optarg);
			break;
		case 't':
			opt.threads = (unsigned int)atoi(optarg);
			break;
		case 'r':
			opt.rate = strtoul(optarg, NULL, 10);
			break;
		case 'd':
			opt.seconds = atof(optarg);
			break;
		case 'i':
			opt.interval = atof(optarg);
			break;
		case 'f':
			opt.fast_node = atoi(optarg);
			break;
		case 'l':
			opt.slow_node = atoi(optarg);
			break;
		case 'e':
			opt.leave_free = parse_size(optarg);
			break;
		case 'g':
			opt.huge = true;
			break;
		case 'o':
			opt.hot_file = optarg;
			break;
		case 'n':
			opt.seed = strtoull(optarg, NULL, 10);
			break;
		case 'c':
			opt.check = false;
			break;
		case 'p':
			opt.map = true;
			break;
		default:
			usage(stderr);
			exit(2);
		}
	}
	opt.size = opt.size / (2ul << 20) * (2ul << 20);
	opt.hot = (size_t)((double)(opt.size / PLACE_PAGE) * hot_share);
	if (optind != argc || !opt.hot || hot_share >= 1 || !opt.threads ||
	    opt.threads > MAX_THREADS || opt.interval <= 0 || opt.hot_access > 1 ||
	    opt.fast_node >= PLACE_MAX_NODES || opt.slow_node >= PLACE_MAX_NODES) {
		usage(stderr);
		exit(2);
	}
}
