/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * watch.c - the process that stays beside a program in a namespace of its own, and keeps what moves
 * in the kernel's files fresh.
 *
 * A script that reads a counter there has nothing of ours inside that could be asked. So ten times
 * a second each counter that has moved is written anew. The program is our child: a helper that was
 * its child, or an orphan, would be in the way of programs that wait for all their children, or of
 * containers without an init. We take its place towards the outside: signals that we are sent go to
 * it, those of the terminal reach it anyway, and we end as it did.
 *
 * When we are killed it is too: the kernel does that (PR_SET_PDEATHSIG), but not to a program that
 * became another user on its way (su, setpriv, set-user-ID). So a second child of ours, the guard,
 * waits for the end of us or of the program, whichever comes first.
 */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "sysfs/sysfs.h"
#include "tools/tools.h"

#define FRESH_MS 100

static void forwarded(sigset_t *set)
{
	static const int signals[] = {SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};

	sigemptyset(set);
	for (size_t i = 0; i < VB_ARRAY_SIZE(signals); i++)
		sigaddset(set, signals[i]);
}

/* become - the child's half. */
static _Noreturn void become(char **argv, pid_t parent, const sigset_t *mask)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent) /* it died before we asked */
		_exit(VB_EXIT_RUN_FAILED);
	sigprocmask(SIG_SETMASK, mask, NULL);
	execvp(argv[0], argv);
	_exit(vb_say_exec_failed(argv[0], errno));
}

/* The guard's whole life. The signals of a terminal are for the others. */
static _Noreturn void guard(int ours, int program)
{
	struct pollfd fds[] = {{.fd = ours, .events = POLLIN}, {.fd = program, .events = POLLIN}};
	sigset_t all;

	sigfillset(&all);
	sigprocmask(SIG_SETMASK, &all, NULL);
	while (poll(fds, VB_ARRAY_SIZE(fds), -1) < 0)
		;
	if (fds[0].revents & POLLIN)
		(void)pidfd_send_signal(program, SIGKILL, NULL, 0);
	_exit(0);
}

/* Its number, or 0: without it the program is as safe as the kernel makes it. */
static pid_t start_guard(pid_t parent, int program)
{
	int ours = pidfd_open(parent, 0);
	pid_t pid = ours < 0 ? -1 : fork();

	if (pid == 0)
		guard(ours, program);
	if (ours >= 0)
		close(ours);
	return pid < 0 ? 0 : pid;
}

static void pass_on(int signals, int pidfd)
{
	struct signalfd_siginfo info;

	/* from the terminal it has its own */
	if (read(signals, &info, sizeof(info)) == (ssize_t)sizeof(info) &&
	    info.ssi_code != SI_KERNEL)
		(void)pidfd_send_signal(pidfd, (int)info.ssi_signo, NULL, 0);
}

static void keep_fresh(int pidfd, int signals, int root_fd, struct vb_device *const *list,
		       int count)
{
	struct pollfd fds[] = {{.fd = pidfd, .events = POLLIN}, {.fd = signals, .events = POLLIN}};
	struct vb_sysfs_seen *seen = vb_sysfs_seen_create(count);
	bool failed = !seen; /* the files stay as they are then; the program goes on */

	while (!(fds[0].revents & POLLIN)) {
		int ready = poll(fds, VB_ARRAY_SIZE(fds), FRESH_MS);

		if (ready < 0 && errno != EINTR)
			break;
		if (ready > 0 && fds[1].revents & POLLIN)
			pass_on(signals, pidfd);
		if (ready == 0 && !failed)
			failed = vb_sysfs_refresh(root_fd, list, count, seen) != 0;
	}
	vb_sysfs_seen_destroy(seen);
}

/* The signal that ended it ends us, so that a shell says the same; without a second core dump. */
static int end_as(int status)
{
	const struct rlimit no_core = {0, 0};
	sigset_t set;
	int number;

	if (WIFEXITED(status))
		return WEXITSTATUS(status);
	number = WTERMSIG(status);
	setrlimit(RLIMIT_CORE, &no_core);
	signal(number, SIG_DFL);
	sigemptyset(&set);
	sigaddset(&set, number);
	sigprocmask(SIG_UNBLOCK, &set, NULL);
	raise(number);
	return 128 + number;
}

int vb_run_and_watch(char **argv, int root_fd, struct vb_device *const *list, int count)
{
	pid_t parent = getpid(), pid, guard_pid;
	int signals, pidfd, status = 0;
	sigset_t set, before;

	forwarded(&set);
	sigprocmask(SIG_BLOCK, &set, &before);
	pid = fork();
	if (pid == 0)
		become(argv, parent, &before);
	signals = signalfd(-1, &set, SFD_CLOEXEC);
	pidfd = pid < 0 ? -1 : pidfd_open(pid, 0);
	if (pid < 0 || pidfd < 0 || signals < 0) {
		vb_complain("--namespace: the program cannot be watched: %s", strerror(errno));
		if (pid > 0) {
			kill(pid, SIGKILL); /* not reaped yet, so the number is still its */
			waitpid(pid, NULL, 0);
		}
		return VB_EXIT_RUN_FAILED;
	}
	guard_pid = start_guard(parent, pidfd);
	keep_fresh(pidfd, signals, root_fd, list, count);
	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			return VB_EXIT_RUN_FAILED;
	while (guard_pid && waitpid(guard_pid, NULL, 0) < 0 && errno == EINTR)
		; /* it ends with the program */
	return end_as(status);
}
