/* Sentences of POSIX that the other files do not cover. */
#include "check.h"

static char buf[65536];

/* "Except aio_fildes and aio_sigevent, all other members are ignored" (aio_fsync). */
static void a_sync_ignores_all_other_fields(void)
{
	int fd = filled("f", 4096);
	struct aiocb s = request(fd, (void *)8, (size_t)-1, -77);
	s.aio_reqprio = INT_MIN;
	s.aio_lio_opcode = 99;
	CHECK(aio_fsync(O_SYNC, &s) == 0 && wait_for(&s) == 0 && aio_return(&s) == 0);
	CHECK(aio_fsync(O_DSYNC, &s) == 0 && wait_for(&s) == 0 && aio_return(&s) == 0);
}

/* Any descriptor is allowed, as for fsync(2). */
static void a_sync_needs_no_access(void)
{
	close(filled("f", 4096));
	struct aiocb s = request(open("f", O_RDONLY), NULL, 0, 0);
	CHECK(aio_fsync(O_SYNC, &s) == 0 && wait_for(&s) == 0 && aio_return(&s) == 0);
}

/* EINVAL: "does not support synchronized I/O for this file". The call does not wait for the reads. */
static void a_pipe_and_a_socket_have_nothing_to_synchronise(void)
{
	int p[2], s[2];
	CHECK(pipe(p) == 0 && socketpair(AF_UNIX, SOCK_STREAM, 0, s) == 0);
	static struct aiocb r[2];
	r[0] = request(p[0], buf, 1, 0);
	r[1] = request(s[0], buf, 1, 0);
	CHECK(aio_read(&r[0]) == 0 && aio_read(&r[1]) == 0);
	int fds[] = { p[1], s[0], s[1] };
	for (int i = 0; i < 3; i++) {
		struct aiocb f = request(fds[i], NULL, 0, 0);
		CHECK(aio_fsync(O_SYNC, &f) == -1 && errno == EINVAL);
	}
	CHECK(write(p[1], "x", 1) == 1 && write(s[1], "x", 1) == 1);
	CHECK(wait_for(&r[0]) == 0 && wait_for(&r[1]) == 0);
}

static volatile sig_atomic_t notified, early;

static void handler(int signo, siginfo_t *info, void *context)
{
	(void)signo, (void)context;
	early += aio_error(info->si_value.sival_ptr) == EINPROGRESS;
	notified++;
}

static void handles(int signo)
{
	struct sigaction action = { .sa_sigaction = handler, .sa_flags = SA_SIGINFO };
	CHECK(sigaction(signo, &action, NULL) == 0);
}

static void await(int n)
{
	double end = now() + HANGS;
	while (notified < n) {
		CHECK(now() < end);
		sched_yield();
	}
	CHECK(notified == n && early == 0);
}

/* A synchronisation notifies as any other request, here by a signal that is not a real-time signal. */
static void a_sync_notifies(void)
{
	int fd = filled("f", 4096);
	handles(SIGUSR2);
	struct aiocb s = request(fd, NULL, 0, 0);
	s.aio_sigevent.sigev_notify = SIGEV_SIGNAL;
	s.aio_sigevent.sigev_signo = SIGUSR2;
	s.aio_sigevent.sigev_value.sival_ptr = &s;
	for (int i = 1; i <= 20; i++) {
		CHECK(aio_fsync(i % 2 ? O_SYNC : O_DSYNC, &s) == 0);
		await(i);
		CHECK(aio_error(&s) == 0 && aio_return(&s) == 0);
	}
}

/* The library does not change the fields that the program has set. */
static void the_programs_fields_stay(void)
{
	int fd = filled("f", 4096), p[2];
	CHECK(pipe(p) == 0);
	for (int i = 0; i < 5; i++) {
		struct aiocb cb = request(i == 3 ? p[0] : fd, buf, 512, i == 2 ? -1 : 1024);
		cb.aio_reqprio = 3;
		cb.aio_lio_opcode = LIO_WRITE;
		cb.aio_sigevent.sigev_signo = 77;
		cb.aio_sigevent.sigev_value.sival_int = 99;
		struct aiocb was = cb;
		int started = i == 0 ? aio_write(&cb) : i == 4 ? aio_fsync(O_SYNC, &cb) : aio_read(&cb);
		if (i == 3)
			CHECK(aio_cancel(p[0], &cb) >= 0 && write(p[1], buf, 1) == 1);
		if (started == 0)
			wait_for(&cb);
		CHECK(cb.aio_fildes == was.aio_fildes && cb.aio_buf == was.aio_buf);
		CHECK(cb.aio_nbytes == was.aio_nbytes && cb.aio_offset == was.aio_offset);
		CHECK(cb.aio_reqprio == 3 && cb.aio_lio_opcode == LIO_WRITE);
		CHECK(memcmp(&cb.aio_sigevent, &was.aio_sigevent, sizeof cb.aio_sigevent) == 0);
	}
}

/* The largest offsets and sizes, compared with pread(2) and pwrite(2). */
static void ends_of_offsets_and_sizes(void)
{
	int fd = filled("f", 4096);
	off_t offsets[] = { 4095, 4096, 4097, 1LL << 40, LLONG_MAX - 512, LLONG_MAX };
	for (int cold = 0; cold < 2; cold++)
		for (size_t i = 0; i < sizeof offsets / sizeof *offsets; i++) {
			for (int write = 0; write < 2; write++) {
				if (write && offsets[i] < LLONG_MAX - 512)
					continue;
				if (cold)
					evict(fd);
				struct aiocb cb = request(fd, buf, 512, offsets[i]);
				ssize_t n = write ? pwrite(fd, buf, 512, offsets[i]) :
						    pread(fd, buf, 512, offsets[i]);
				int e = n < 0 ? errno : 0;
				if ((write ? aio_write(&cb) : aio_read(&cb)) != 0)
					CHECK(errno == e);
				else
					CHECK(wait_for(&cb) == e && aio_return(&cb) == n);
			}
		}
	struct aiocb all = request(fd, buf, SSIZE_MAX, 0);
	if (ours())
		CHECK(aio_read(&all) == 0 && wait_for(&all) == 0 && aio_return(&all) == 4096);
	struct aiocb none = request(fd, buf, 0, 100);
	CHECK(aio_read(&none) == 0 && wait_for(&none) == 0 && aio_return(&none) == 0);
	CHECK(aio_write(&none) == 0 && wait_for(&none) == 0 && aio_return(&none) == 0);
	struct stat st;
	CHECK(fstat(fd, &st) == 0 && st.st_size == 4096);
	struct aiocb hole = request(fd, "end", 3, 1 << 20);
	CHECK(aio_write(&hole) == 0 && wait_for(&hole) == 0 && aio_return(&hole) == 3);
	CHECK(fstat(fd, &st) == 0 && st.st_size == (1 << 20) + 3);
}

/* With O_APPEND any valid offset is ignored. */
static void an_append_ignores_its_offset(void)
{
	close(filled("f", 512));
	int fd = open("f", O_WRONLY | O_APPEND);
	for (int i = 0; i < 5; i++) {
		struct aiocb w = request(fd, "abcd", 4, i * 1000);
		CHECK(aio_write(&w) == 0 && wait_for(&w) == 0 && aio_return(&w) == 4);
	}
	struct stat st;
	CHECK(fstat(fd, &st) == 0 && st.st_size == 512 + 20);
}

/* "If mode is LIO_WAIT ... the sig argument shall be ignored". Each request still notifies. */
static void a_list_that_waits_ignores_its_event(void)
{
	enum { N = 6 };
	int fd = filled("f", 65536);
	handles(SIGRTMIN);
	handles(SIGRTMIN + 1);
	static struct aiocb cb[N];
	struct aiocb *list[N + 2] = { NULL };
	for (int i = 0; i < N; i++) {
		cb[i] = request(fd, buf, 512, i * 4096);
		cb[i].aio_lio_opcode = i % 3;
		cb[i].aio_sigevent.sigev_notify = SIGEV_SIGNAL;
		cb[i].aio_sigevent.sigev_signo = SIGRTMIN;
		cb[i].aio_sigevent.sigev_value.sival_ptr = &cb[i];
		list[i + 1] = &cb[i];
	}
	struct sigevent event = { .sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGRTMIN + 1 };
	sigset_t block;
	sigemptyset(&block);
	sigaddset(&block, SIGRTMIN);
	/* A handler that runs meanwhile would end the wait. */
	CHECK(pthread_sigmask(SIG_BLOCK, &block, NULL) == 0);
	CHECK(lio_listio(LIO_WAIT, list, N + 2, &event) == 0);
	for (int i = 0; i < N; i++)
		CHECK(cb[i].aio_lio_opcode == LIO_NOP ||
		      (aio_error(&cb[i]) == 0 && aio_return(&cb[i]) == 512));
	CHECK(pthread_sigmask(SIG_UNBLOCK, &block, NULL) == 0);
	await(4);
	event.sigev_notify = 77;
	list[1] = NULL;
	cb[1].aio_sigevent.sigev_notify = SIGEV_NONE;
	CHECK(lio_listio(LIO_WAIT, list, 3, &event) == 0);
	CHECK(lio_listio(LIO_WAIT, list, 1, NULL) == 0 && lio_listio(LIO_WAIT, list, 0, NULL) == 0);
}

/* A request that fails does not stop the others, and has the same error as alone. */
static void each_of_a_list_has_its_own_status(void)
{
	int fd = filled("f", 65536), in = open("f", O_RDONLY);
	char *gone = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct aiocb cb[] = { request(fd, buf, 512, 0), request(-1, buf, 512, 0),
			      request(in, buf, 512, 0), request(fd, buf, 512, -1),
			      request(fd, gone, 512, 0), request(fd, buf, 512, 4096) };
	int ops[] = { LIO_READ, LIO_READ, LIO_WRITE, LIO_READ, LIO_WRITE, LIO_WRITE };
	int errors[] = { 0, EBADF, EBADF, EINVAL, EFAULT, 0 };
	for (int mode = 0; mode < 2; mode++) {
		struct aiocb *list[6];
		for (int i = 0; i < 6; i++) {
			cb[i].aio_lio_opcode = ops[i];
			list[i] = &cb[i];
		}
		int answer = lio_listio(mode ? LIO_WAIT : LIO_NOWAIT, list, 6, NULL);
		CHECK(answer == -1 ? errno == EIO : mode == 0);
		for (int i = 0; i < 6; i++) {
			CHECK(wait_for(&cb[i]) == errors[i]);
			CHECK(aio_return(&cb[i]) == (errors[i] ? -1 : 512));
		}
	}
}

/* "...other than [EAGAIN], [EINTR], or [EIO], no operations have been initiated". */
static void a_list_that_is_refused_starts_nothing(void)
{
	int fd = filled("f", 512);
	struct aiocb w = request(fd, "changed", 7, 0), *list[] = { &w };
	w.aio_lio_opcode = LIO_WRITE;
	CHECK(lio_listio(9, list, 1, NULL) == -1 && errno == EINVAL);
	nap(20);
	CHECK(pread(fd, buf, 7, 0) == 7 && memcmp(buf, "\0\0\0\0\0\0\0", 7) == 0);
}

/* A program may exit or call execve(2) with requests in flight. */
static void a_program_ends_with_requests_in_flight(void)
{
	for (int i = 0; i < 4; i++) {
		pid_t child = fork();
		if (child == 0) {
			int p[2], fd = filled("g", 1 << 20);
			CHECK(pipe(p) == 0);
			static struct aiocb r, w[100];
			r = request(p[0], buf, 1, 0);
			CHECK(aio_read(&r) == 0);
			for (int j = 0; j < 100; j++) {
				w[j] = request(fd, buf, 4096, j * 4096);
				CHECK(aio_write(&w[j]) == 0);
			}
			if (i % 2)
				/* The new program has no descriptor of the library. */
				execl("/bin/sh", "sh", "-c",
				      "! ls -l /proc/self/fd | grep -q socket:", NULL);
			exit(0);
		}
		int status;
		CHECK(waitpid(child, &status, 0) == child && status == 0);
	}
}

/* EAGAIN at once, or success if a request is done. */
static void a_wait_without_time_returns_at_once(void)
{
	int p[2], fd = filled("f", 4096);
	CHECK(pipe(p) == 0);
	struct aiocb r = request(p[0], buf, 1, 0), s = request(fd, buf, 512, 0);
	const struct aiocb *list[] = { &r, NULL, &s };
	struct timespec none = { 0, 0 };
	CHECK(aio_read(&r) == 0);
	CHECK(aio_suspend(list, 1, &none) == -1 && errno == EAGAIN);
	CHECK(aio_suspend(list, 2, &none) == -1 && errno == EAGAIN);
	CHECK(aio_read(&s) == 0 && wait_for(&s) == 0);
	CHECK(aio_suspend(list, 3, &none) == 0);
	CHECK(aio_suspend(list, 2, &none) == -1 && errno == EAGAIN);
	CHECK(write(p[1], "x", 1) == 1 && wait_for(&r) == 0);
	CHECK(aio_suspend(list, 1, &none) == 0);
}

TESTS(CASE(a_sync_ignores_all_other_fields), CASE(a_sync_needs_no_access),
      CASE(a_pipe_and_a_socket_have_nothing_to_synchronise), CASE(a_sync_notifies),
      CASE(the_programs_fields_stay), CASE(ends_of_offsets_and_sizes),
      CASE(an_append_ignores_its_offset), CASE(a_list_that_waits_ignores_its_event),
      CASE(each_of_a_list_has_its_own_status), CASE(a_list_that_is_refused_starts_nothing),
      CASE(a_program_ends_with_requests_in_flight), CASE(a_wait_without_time_returns_at_once))
