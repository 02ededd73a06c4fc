/* SPDX-License-Identifier: BSD-2-Clause */
/* child.c - see child.h. */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/pidfd.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tools/child.h"
#include "tools/tools.h"

#define LISTEN_LOOK_MS 3 /* between two looks at the kernel's table of sockets */
#define TCP_LISTEN_STATE 0x0a

uint64_t vb_tools_now(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * VB_NS_PER_S + (uint64_t)now.tv_nsec;
}

/* become - the child's half of vb_child_start(). */
static _Noreturn void become(char *const *argv, const char *addr, int output, pid_t parent)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent) /* it died before we asked */
		_exit(VB_EXIT_RUN_FAILED);
	if (dup2(output, STDOUT_FILENO) < 0 || dup2(output, STDERR_FILENO) < 0 ||
	    setenv("VERBENA_ADDR", addr, 1) != 0)
		_exit(VB_EXIT_RUN_FAILED);
	execvp(argv[0], argv);
	_exit(vb_say_exec_failed(argv[0], errno));
}

int vb_child_start(struct vb_child *child, char *const *argv, const char *addr)
{
	pid_t parent = getpid();
	int error;

	memset(child, 0, sizeof(*child));
	child->pidfd = -1;
	child->output = memfd_create("verbena-output", MFD_CLOEXEC);
	if (child->output < 0)
		return -errno;
	fflush(NULL);
	child->pid = fork();
	if (child->pid < 0) {
		error = errno;
		goto err_output;
	}
	if (child->pid == 0)
		become(argv, addr, child->output, parent);
	child->pidfd = pidfd_open(child->pid, 0);
	if (child->pidfd < 0) {
		error = errno;
		goto err_child;
	}
	return 0;

err_child:
	kill(child->pid, SIGKILL); /* not reaped yet, so the number is still its */
	waitpid(child->pid, NULL, 0);
err_output:
	close(child->output);
	child->pid = 0;
	return -error;
}

static int timeout_ms(uint64_t deadline_ns)
{
	uint64_t now = vb_tools_now();

	return now >= deadline_ns ? 0
				  : (int)((deadline_ns - now + VB_NS_PER_MS - 1) / VB_NS_PER_MS);
}

bool vb_child_wait(struct vb_child *child, uint64_t deadline_ns)
{
	struct pollfd fd = {.fd = child->pidfd, .events = POLLIN};

	if (child->ended)
		return true;
	while (poll(&fd, 1, timeout_ms(deadline_ns)) < 0)
		if (errno != EINTR)
			return false;
	if (!(fd.revents & POLLIN))
		return false;
	child->ended = waitpid(child->pid, &child->status, 0) == child->pid;
	return child->ended;
}

/* table_has_listener - a line reads "  0: 0100007F:4855 00000000:0000 0A ...". */
static bool table_has_listener(const char *file, uint16_t port)
{
	FILE *table = fopen(file, "re");
	unsigned int found_port, state;
	bool found = false;
	char line[512];

	if (!table)
		return false;
	while (!found && fgets(line, sizeof(line), table))
		found = sscanf(line, " %*u: %*[0-9A-Fa-f]:%x %*[0-9A-Fa-f]:%*x %x", &found_port,
			       &state) == 2 &&
			found_port == port && state == TCP_LISTEN_STATE;
	fclose(table);
	return found;
}

bool vb_child_wait_listening(struct vb_child *child, uint16_t port, uint64_t deadline_ns)
{
	while (vb_tools_now() < deadline_ns) {
		if (table_has_listener("/proc/self/net/tcp", port) ||
		    table_has_listener("/proc/self/net/tcp6", port))
			return true;
		if (vb_child_wait(child, vb_tools_now() + LISTEN_LOOK_MS * VB_NS_PER_MS))
			return false;
	}
	return false;
}

bool vb_child_succeeded(const struct vb_child *child)
{
	return child->ended && WIFEXITED(child->status) && WEXITSTATUS(child->status) == 0;
}

char *vb_child_output(const struct vb_child *child)
{
	struct stat status;
	size_t size = 0, have = 0;
	ssize_t got = 1;
	char *text;

	if (fstat(child->output, &status) == 0)
		size = (size_t)status.st_size;
	text = malloc(size + 1);
	if (!text)
		return NULL;
	while (have < size && got > 0) {
		got = pread(child->output, text + have, size - have, (off_t)have);
		if (got > 0)
			have += (size_t)got;
	}
	text[have] = '\0';
	return text;
}

void vb_child_end(struct vb_child *child)
{
	if (!child->pid)
		return;
	if (!child->ended) {
		pidfd_send_signal(child->pidfd, SIGKILL, NULL, 0);
		child->ended = waitpid(child->pid, &child->status, 0) == child->pid;
	}
	close(child->pidfd);
	close(child->output);
	child->pid = 0;
}

uint16_t vb_free_tcp_port(void)
{
	struct sockaddr_in address = {.sin_family = AF_INET};
	socklen_t size = sizeof(address);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	uint16_t port = 0;

	if (fd < 0)
		return 0;
	if (bind(fd, (struct sockaddr *)&address, size) == 0 &&
	    getsockname(fd, (struct sockaddr *)&address, &size) == 0)
		port = ntohs(address.sin_port);
	close(fd);
	return port;
}
