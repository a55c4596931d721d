/* SPDX-License-Identifier: Apache-2.0 */
/*
 * redis: a Redis server of its own (no disk, a Unix socket) under GET and SET after Zipf 0.99,
 * nine to one, in pipelines of 32. --work: commands. The reported pid is the server's.
 *
 * Every value follows from its key and how often it was set, and each GET checks the value it
 * got; at the end all keys are read once more.
 */
#include "suite.h"
#include "zipf.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

enum { VALUE = 400, KEY_BYTES = 520, PIPELINE = 32, REPLY = 1 << 16 };

struct command {
	uint64_t key;
	bool set;
};

static char folder[] = "/tmp/suite-redis-XXXXXX";
static char path[sizeof(folder) + 16];
static uint32_t *times_set;
static pid_t server;
static FILE *in, *out;

static void end_server(void)
{
	if (server > 0) {
		kill(server, SIGKILL);
		waitpid(server, NULL, 0);
	}
	unlink(path);
	rmdir(folder);
}

static void die(const char *what)
{
	fprintf(stderr, "redis: %s: %s\n", what, strerror(errno));
	exit(1);
}

static void start_server(void)
{
	char *const arguments[] = {
	    "redis-server", "--port", "0",     "--unixsocket", path, "--save", "",
	    "--appendonly", "no",     "--dir", folder,	       NULL,
	};
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd;

	if (!mkdtemp(folder))
		die(folder);
	snprintf(path, sizeof(path), "%s/socket", folder);
	memcpy(address.sun_path, path, sizeof(path));
	atexit(end_server);
	server = fork();
	if (!server) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (!freopen("/dev/null", "w", stdout) || !freopen("/dev/null", "r", stdin))
			_exit(127);
		execvp("redis-server", arguments);
		/* Debian's redis-tools has the program too, which goes by argv[0]. */
		execvp("redis-check-rdb", arguments);
		_exit(127);
	}
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	for (unsigned int tries = 0; connect(fd, (struct sockaddr *)&address, sizeof(address));
	     tries++) {
		if (waitpid(server, NULL, WNOHANG)) {
			server = 0;
			fputs("redis: redis-server did not start: is it installed?\n", stderr);
			exit(1);
		}
		if (tries > 6000)
			die("no answer from redis-server");
		usleep(10000);
	}
	in = fdopen(fd, "r");
	out = fdopen(dup(fd), "w");
	if (!in || !out)
		die("fdopen");
	setvbuf(in, NULL, _IOFBF, REPLY);
	setvbuf(out, NULL, _IOFBF, REPLY);
}

static void value_of(uint64_t key, char *value)
{
	uint64_t word = mix64(key) + times_set[key];

	for (unsigned int i = 0; i < VALUE; i += 16)
		snprintf(value + i, 17, "%016llx", (unsigned long long)(word + i));
}

static void ask(const struct command *command)
{
	char value[VALUE + 1];

	if (!command->set) {
		fprintf(out, "*2\r\n$3\r\nGET\r\n$12\r\n%012llx\r\n",
			(unsigned long long)command->key);
		return;
	}
	times_set[command->key]++;
	value_of(command->key, value);
	fprintf(out, "*3\r\n$3\r\nSET\r\n$12\r\n%012llx\r\n$%d\r\n%s\r\n",
		(unsigned long long)command->key, VALUE, value);
}

static bool answered(const struct command *command, const char *expected)
{
	char line[64], value[VALUE + 2];

	if (!fgets(line, sizeof(line), in))
		die("the server went away");
	if (command->set)
		return !strcmp(line, "+OK\r\n");
	if (atoi(line + 1) != VALUE || line[0] != '$')
		return false;
	if (fread(value, 1, sizeof(value), in) != sizeof(value))
		die("the server went away");
	return !memcmp(value, expected, VALUE);
}

/* Sends the commands together and takes the answers; the number of wrong ones. */
static uint64_t pipeline(const struct command *commands, unsigned int count)
{
	static char expected[PIPELINE][VALUE + 1];
	uint64_t wrong = 0;

	for (unsigned int i = 0; i < count; i++) {
		ask(&commands[i]);
		value_of(commands[i].key, expected[i]);
	}
	if (fflush(out))
		die("the server went away");
	for (unsigned int i = 0; i < count; i++)
		wrong += !answered(&commands[i], expected[i]);
	return wrong;
}

static uint64_t all_keys(uint64_t keys, bool set)
{
	struct command commands[PIPELINE];
	uint64_t wrong = 0;

	for (uint64_t key = 0; key < keys; key += PIPELINE) {
		unsigned int count = keys - key < PIPELINE ? (unsigned int)(keys - key) : PIPELINE;

		for (unsigned int i = 0; i < count; i++)
			commands[i] = (struct command){key + i, set};
		wrong += pipeline(commands, count);
	}
	return wrong;
}

int main(int argc, char **argv)
{
	struct suite suite = {.name = "redis",
			      .size = 256ul << 20,
			      .work = 200000,
			      .seed = 1,
			      .can_be_endless = true};
	uint64_t keys, state, wrong, answer = 0, done = 0;
	struct command commands[PIPELINE];
	struct zipf zipf;

	suite_options(&suite, argc, argv);
	keys = suite.size / KEY_BYTES;
	times_set = calloc(keys, sizeof(*times_set));
	if (!times_set)
		die("memory");
	start_server();
	suite.pid = server;
	suite_count(keys * KEY_BYTES);
	wrong = all_keys(keys, true);
	zipf_make(&zipf, keys, 0.99);
	state = mix64(suite.seed);
	suite_start(&suite);
	while (suite_goes_on(&suite, done)) {
		for (unsigned int i = 0; i < PIPELINE; i++, done++)
			commands[i] = (struct command){zipf_item(&zipf, &state), done % 10 == 9};
		wrong += pipeline(commands, PIPELINE);
		suite_progress(PIPELINE);
	}
	suite_stop();
	if (suite.spoil)
		times_set[keys / 2]++;
	wrong += all_keys(keys, false);
	for (uint64_t key = 0; key < keys; key++)
		answer += mix64(key) * times_set[key];
	return suite_end(&suite, done, !wrong, answer);
}
