/* Requests of every kind while a system call fails. FAULT_CALL is its number, FAULT_ERRNO the error,
   FAULT_AT the index of the first call that fails, FAULT_ONCE 1 if only that one fails. A thread without
   a filter decides about each call (seccomp_unotify(2)). The program's own calls do not fail. */
#include "check.h"
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>

static volatile int listener = -1, armed, failed, calls;
static pid_t program;
static int fault_errno, fault_at, fault_once;

static void *decides(void *unused)
{
	(void)unused;
	while (listener < 0)
		nap(1);
	for (;;) {
		struct seccomp_notif asked;
		memset(&asked, 0, sizeof asked);
		if (ioctl(listener, SECCOMP_IOCTL_NOTIF_RECV, &asked) != 0)
			continue;
		struct seccomp_notif_resp answer = { .id = asked.id };
		int fails = 0;
		if ((pid_t)asked.pid != program || armed) {
			calls++;
			fails = fault_once ? calls == fault_at : calls >= fault_at;
		}
		if (fails) {
			failed++;
			answer.error = -fault_errno;
		} else
			answer.flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE;
		ioctl(listener, SECCOMP_IOCTL_NOTIF_SEND, &answer);
	}
	return NULL;
}

static void inject(void)
{
	const char *call = getenv("FAULT_CALL");
	if (!call)
		return;
	fault_errno = atoi(getenv("FAULT_ERRNO"));
	fault_at = atoi(getenv("FAULT_AT"));
	fault_once = atoi(getenv("FAULT_ONCE"));
	program = gettid();
	pthread_t t;
	CHECK(pthread_create(&t, NULL, decides, NULL) == 0);
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)atoi(call), 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog filters = { sizeof filter / sizeof *filter, filter };
	CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
	int fd = (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER,
			      SECCOMP_FILTER_FLAG_NEW_LISTENER, &filters);
	CHECK(fd >= 0);
	listener = fd;
}

/* A call of the library, which may get the error. */
#define ARMED(call) (armed = 1, result = (call), error = errno, armed = 0, result)

static int result, error;
static int file, in, out;
static char block[12][4096];
static volatile int threads_notified;

static void on_thread(union sigval value)
{
	(void)value;
	/* This thread has an empty mask, and may take a moment to end. It must not get the next signal. */
	sigset_t all;
	sigfillset(&all);
	CHECK(pthread_sigmask(SIG_BLOCK, &all, NULL) == 0);
	__atomic_add_fetch(&threads_notified, 1, __ATOMIC_SEQ_CST);
}

static int is_resources(int errno_)
{
	return errno_ == EAGAIN || errno_ == fault_errno;
}

/* Waits for a request. Its result must be an error, or n bytes. */
static int ends(struct aiocb *cb, ssize_t n)
{
	double limit = now() + HANGS;
	while (ARMED(aio_error(cb)) == EINPROGRESS) {
		CHECK(now() < limit);
		nap(1);
	}
	int status = result;
	CHECK(status >= 0);
	if (status == 0)
		CHECK(ARMED((int)aio_return(cb)) == n);
	else
		CHECK(aio_return(cb) == -1);
	return status;
}

/* Submits a request. Returns 0 if the call failed. */
static int submitted(int (*submit)(struct aiocb *), struct aiocb *cb)
{
	if (ARMED(submit(cb)) == 0)
		return 1;
	CHECK(result == -1 && is_resources(error));
	CHECK(aio_error(cb) == error || (aio_error(cb) == -1 && errno == EINVAL));
	return 0;
}

static int syncs(struct aiocb *cb) { return aio_fsync(O_DSYNC, cb); }

/* The round after the faults. */
enum { LAST = 9 };

/* Returns 1 if a notification may still come after so many milliseconds. It need not if a call has failed. */
static int comes(int round, int milliseconds)
{
	return milliseconds < (!failed || round == LAST ? 60000 : 500);
}

/* Returns 1 if nothing failed. */
static int round_of_all(int round)
{
	int well = 1;
	char c[4] = "";
	memset(block, 0, sizeof block);
	memset(block[1], 'a' + round, 4096);
	evict(file);
	struct aiocb cold = request(file, block[0], 4096, 8192);
	struct aiocb w = request(file, block[1], 4096, 0);
	struct aiocb sync = request(file, NULL, 0, 0);
	struct aiocb from = request(in, &c[0], 1, 0), to = request(out, "x", 1, 0);
	struct aiocb stays = request(in, &c[1], 1, 0);
	struct aiocb notified = request(file, block[2], 4096, 32768);
	struct aiocb by_thread = request(file, block[3], 4096, 36864);
	struct aiocb of_list[2] = { request(file, block[4], 4096, 16384),
				    request(file, block[5], 4096, 40960) };
	struct aiocb *list[2] = { &of_list[0], &of_list[1] };
	notified.aio_sigevent.sigev_notify = SIGEV_SIGNAL;
	notified.aio_sigevent.sigev_signo = SIGRTMIN;
	by_thread.aio_sigevent.sigev_notify = SIGEV_THREAD;
	by_thread.aio_sigevent.sigev_notify_function = on_thread;
	of_list[0].aio_lio_opcode = LIO_READ;
	of_list[1].aio_lio_opcode = LIO_WRITE;

	/* A read, a write and a synchronisation of a regular file. */
	int cold_is = submitted(aio_read, &cold), w_is = submitted(aio_write, &w);
	int sync_is = submitted(syncs, &sync);
	if (cold_is && ends(&cold, 4096) == 0)
		CHECK(block[0][0] == 16 && block[0][4095] == 23);
	else
		well = 0;
	char back[4096];
	if (w_is && ends(&w, 4096) == 0)
		CHECK(pread(file, back, 4096, 0) == 4096 && !memcmp(back, block[1], 4096));
	else
		well = 0;
	well &= sync_is && ends(&sync, 0) == 0;

	/* A read of a pipe, and one that is cancelled. */
	int from_is = submitted(aio_read, &from), stays_is = submitted(aio_read, &stays);
	if (stays_is) {
		int answer = ARMED(aio_cancel(in, &stays));
		int status = aio_error(&stays);
		CHECK(answer != AIO_CANCELED || status == ECANCELED);
		CHECK(answer != AIO_ALLDONE || status != EINPROGRESS);
		well &= answer == AIO_CANCELED;
	}
	if (submitted(aio_write, &to))
		well &= ends(&to, 1) == 0;
	else
		well = 0;
	/* Ends the reads of the pipe, and empties it. */
	CHECK(write(out, "yz", 2) == 2);
	well &= from_is && ends(&from, 1) == 0 && c[0] == 'x';
	if (stays_is)
		ends(&stays, 1);
	fcntl(in, F_SETFL, O_NONBLOCK);
	while (read(in, back, sizeof back) > 0)
		;
	fcntl(in, F_SETFL, 0);

	/* Notifications. */
	sigset_t set;
	sigemptyset(&set);
	sigaddset(&set, SIGRTMIN);
	struct timespec some = { 0, 1000000 };
	int came = 0;
	if (submitted(aio_write, &notified)) {
		ends(&notified, 4096);
		for (int i = 0; comes(round, i) && !came; i++)
			came = sigtimedwait(&set, NULL, &some) == SIGRTMIN;
		well &= came;
	} else
		well = 0;
	int before = threads_notified;
	if (submitted(aio_write, &by_thread)) {
		ends(&by_thread, 4096);
		for (int i = 0; comes(round, i) && threads_notified == before; i++)
			nap(1);
		well &= threads_notified == before + 1;
	} else
		well = 0;

	/* A list. */
	if (ARMED(lio_listio(LIO_WAIT, list, 2, NULL)) == 0) {
		CHECK(aio_error(list[0]) == 0 && aio_error(list[1]) == 0);
		CHECK(block[4][0] == 32 && block[4][4095] == 39);
	} else {
		CHECK(error == EIO || error == EINTR || is_resources(error));
		for (int i = 0; i < 2; i++)
			if (aio_error(list[i]) != -1)
				ends(list[i], 4096);
		well = 0;
	}
	return well;
}

static int descriptors(void)
{
	int n = 0;
	for (int fd = 0; fd < 1024; fd++)
		n += fcntl(fd, F_GETFD) != -1;
	return n;
}

static void nothing_hangs_leaks_or_lies(void)
{
	sigset_t set;
	int p[2];
	sigemptyset(&set);
	sigaddset(&set, SIGRTMIN);
	CHECK(pthread_sigmask(SIG_BLOCK, &set, NULL) == 0);
	/* Several processes of this program run at a time. */
	char name[32];
	snprintf(name, sizeof name, "f%d", getpid());
	file = filled(name, 65536);
	CHECK(unlink(name) == 0);
	CHECK(pipe(p) == 0);
	in = p[0];
	out = p[1];
	inject();
	int before = descriptors();
	for (int round = 0; round < 2 || (round < LAST && !failed); round++)
		round_of_all(round);
	/* After a call that failed once, nothing fails. A cached read makes fewer calls: then none may have failed. */
	if (!getenv("FAULT_CALL") || (fault_once && failed))
		CHECK(round_of_all(LAST));
	CHECK(descriptors() <= before + ours());
}

TESTS(CASE(nothing_hangs_leaks_or_lies))
