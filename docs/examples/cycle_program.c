/* A program that is the work of a periodic task, in C.
 *
 *     cc -O2 -o program docs/examples/cycle_program.c
 *     horolog cycle run --period 10ms --program -- ./program
 *
 * HOROLOG_CYCLE_FD is the number of a Unix datagram socket that is connected already. Each datagram
 * is one line. The instant of a mark is taken by the kernel in send(2).
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

static int socket_fd;

static void mark(const char *line)
{
	if (send(socket_fd, line, strlen(line), 0) < 0)
		exit(1); /* nobody measures any longer */
}

int main(void)
{
	static double field[20000];
	const char *number = getenv("HOROLOG_CYCLE_FD");
	char line[129];
	ssize_t length;

	if (!number) {
		fprintf(stderr, "program: start it by 'horolog cycle run --program'\n");
		return 1;
	}
	socket_fd = atoi(number);
	mark("ready");
	while ((length = recv(socket_fd, line, sizeof line - 1, 0)) > 0) {
		unsigned long long cycle;
		long long due_ns; /* CLOCK_MONOTONIC */
		size_t at;

		line[length] = '\0';
		if (sscanf(line, "release %llu %lld", &cycle, &due_ns) != 2)
			return 0; /* "stop" */
		mark("begin");
		for (at = 1; at + 1 < sizeof field / sizeof *field; at++)
			field[at] = (field[at - 1] + field[at + 1] + (double)cycle) / 3;
		mark("phase communication");
		/* What goes to other machines would be sent and awaited here. */
		mark("end");
	}
	return 1;
}
