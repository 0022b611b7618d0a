/* Bad input: errors of arguments at the call, errors of I/O through aio_error. */
#include "check.h"

static char buf[4096];

/* The call or the request fails with this error. */
static void fails(int (*submit)(struct aiocb *), struct aiocb *cb, int errno_)
{
	errno = 0;
	if (submit(cb) == -1)
		CHECK(errno == errno_);
	else
		CHECK(wait_for(cb) == errno_ && aio_return(cb) == -1);
}

static void bad_descriptors(void)
{
	int fds[] = { -1, INT_MIN, 12345, INT_MAX };
	for (size_t i = 0; i < 4; i++) {
		struct aiocb r = request(fds[i], buf, 512, 0);
		fails(aio_read, &r, EBADF);
		fails(aio_write, &r, EBADF);
		CHECK(aio_fsync(O_SYNC, &r) == -1 && errno == EBADF);
		CHECK(aio_cancel(fds[i], NULL) == -1 && errno == EBADF);
	}
}

static void bad_access_modes(void)
{
	close(filled("f", 4096));
	struct aiocb w = request(open("f", O_RDONLY), buf, 512, 0);
	fails(aio_write, &w, EBADF);
	struct aiocb r = request(open("f", O_WRONLY), buf, 512, 0);
	fails(aio_read, &r, EBADF);
	struct aiocb p = request(open("f", O_PATH), buf, 512, 0);
	fails(aio_read, &p, EBADF);
	fails(aio_write, &p, EBADF);
}

/* POSIX allows both: an error of the call, and an error of the request. */
static void a_bad_descriptor_is_an_error_of_the_request(void)
{
	close(filled("f", 4096));
	struct aiocb r[] = {
		request(-1, buf, 512, 0),
		request(12345, buf, 512, 0),
		request(open("f", O_WRONLY), buf, 512, 0),
		request(open("f", O_PATH), buf, 512, 0),
	};
	for (size_t i = 0; i < sizeof r / sizeof *r; i++) {
		CHECK(aio_read(&r[i]) == 0);
		CHECK(wait_for(&r[i]) == EBADF && aio_return(&r[i]) == -1);
	}
	struct aiocb w = request(open("f", O_RDONLY), buf, 512, 0);
	CHECK(aio_write(&w) == 0 && wait_for(&w) == EBADF && aio_return(&w) == -1);
	/* aio_fsync fails at the call if the number is not a descriptor. */
	CHECK(aio_fsync(O_SYNC, &r[0]) == -1 && errno == EBADF);
	CHECK(aio_fsync(O_SYNC, &r[3]) == 0 && wait_for(&r[3]) == EBADF);
	/* The program is notified, as of any other error of a request. */
	sigset_t set;
	siginfo_t info;
	sigemptyset(&set);
	sigaddset(&set, SIGRTMIN);
	CHECK(pthread_sigmask(SIG_BLOCK, &set, NULL) == 0);
	r[1].aio_sigevent.sigev_notify = SIGEV_SIGNAL;
	r[1].aio_sigevent.sigev_signo = SIGRTMIN;
	r[1].aio_sigevent.sigev_value.sival_int = 77;
	CHECK(aio_read(&r[1]) == 0);
	CHECK(sigwaitinfo(&set, &info) == SIGRTMIN && info.si_value.sival_int == 77);
	CHECK(aio_error(&r[1]) == EBADF);
}

/* POSIX: "The resources to queue the request are not available". glibc needs no descriptor. */
static void a_full_descriptor_table_is_eagain(void)
{
	int fd = filled("f", 4096), last = 0;
	struct rlimit limit = { 64, 64 };
	CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
	for (int more; (more = dup(fd)) >= 0;)
		last = more;
	struct aiocb w = request(fd, buf, 512, 0), *list[1] = { &w };
	w.aio_lio_opcode = LIO_WRITE;
	for (int spare = 0; spare < 3; spare++) {
		if (aio_write(&w) == 0)
			CHECK(wait_for(&w) == 0 && aio_return(&w) == 512);
		else
			CHECK(errno == EAGAIN && aio_error(&w) == EAGAIN);
		if (lio_listio(LIO_WAIT, list, 1, NULL) == 0)
			CHECK(aio_error(&w) == 0);
		else
			CHECK(errno == EAGAIN && aio_error(&w) == EAGAIN);
		CHECK(close(last--) == 0);
	}
	for (int spare = 0; spare < 8; spare++)
		CHECK(close(last--) == 0);
	CHECK(aio_write(&w) == 0 && wait_for(&w) == 0 && aio_return(&w) == 512);
}

static void argument_errors_fail_the_call(void)
{
	int fd = filled("f", 4096);
	struct aiocb r = request(fd, buf, 512, -1);
	CHECK(aio_read(&r) == -1 && errno == EINVAL);
	r = request(fd, buf, (size_t)SSIZE_MAX + 1, 0);
	CHECK(aio_read(&r) == -1 && errno == EINVAL);
}

static void a_directory(void)
{
	struct aiocb r = request(open(".", O_RDONLY | O_DIRECTORY), buf, 512, 0);
	fails(aio_read, &r, EISDIR);
	fails(aio_write, &r, EBADF);
}

static void bad_offsets_sizes_and_priorities(void)
{
	int fd = filled("f", 4096);
	off_t offsets[] = { -1, -4096, LLONG_MIN };
	for (size_t i = 0; i < 3; i++) {
		struct aiocb r = request(fd, buf, 512, offsets[i]);
		fails(aio_read, &r, EINVAL);
		fails(aio_write, &r, EINVAL);
	}
	size_t sizes[] = { (size_t)SSIZE_MAX + 1, (size_t)-1 };
	for (size_t i = 0; i < 2; i++) {
		struct aiocb r = request(fd, buf, sizes[i], 0);
		fails(aio_read, &r, EINVAL);
		fails(aio_write, &r, EINVAL);
	}
	int priorities[] = { -1, 21, INT_MIN, INT_MAX };
	for (size_t i = 0; i < 4; i++) {
		struct aiocb r = request(fd, buf, 512, 0);
		r.aio_reqprio = priorities[i];
		fails(aio_read, &r, EINVAL);
	}
	for (int i = 0; i <= 20; i++) {
		struct aiocb r = request(fd, buf, 512, 0);
		r.aio_reqprio = i;
		CHECK(aio_read(&r) == 0 && wait_for(&r) == 0);
	}
	struct aiocb r = request(fd, buf, 512, 0);
	CHECK(aio_fsync(0, &r) == -1 && errno == EINVAL);
	CHECK(aio_fsync(O_RDWR, &r) == -1 && errno == EINVAL);
}

static void wild_pointers(void)
{
	int fd = filled("f", 65536);
	char *gone = mmap(NULL, 65536, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	void *wild[] = { NULL, gone, (void *)8, (void *)-4096, (void *)(UINTPTR_MAX >> 1) };
	for (int cold = 0; cold < 2; cold++)
		for (size_t i = 0; i < 5; i++) {
			if (cold)
				evict(fd);
			struct aiocb r = request(fd, wild[i], 4096, 8192);
			fails(aio_read, &r, EFAULT);
			fails(aio_write, &r, EFAULT);
		}
	struct aiocb none = request(fd, NULL, 0, 0);
	CHECK(aio_read(&none) == 0 && wait_for(&none) == 0 && aio_return(&none) == 0);
	int p[2];
	CHECK(pipe(p) == 0 && write(p[1], "x", 1) == 1);
	struct aiocb r = request(p[0], gone, 1, 0);
	fails(aio_read, &r, EFAULT);
}

static void wild_notifications(void)
{
	int fd = filled("f", 65536);
	int kinds[] = { 3, -1, 77, INT_MAX };
	for (size_t i = 0; i < 4; i++) {
		struct aiocb r = request(fd, buf, 512, 0);
		r.aio_sigevent.sigev_notify = kinds[i];
		CHECK(aio_read(&r) == -1 && errno == EINVAL);
	}
	int signals[] = { -1, 65, INT_MAX };
	for (size_t i = 0; i < 3; i++) {
		struct aiocb r = request(fd, buf, 512, 0);
		r.aio_sigevent.sigev_notify = SIGEV_SIGNAL;
		r.aio_sigevent.sigev_signo = signals[i];
		CHECK(aio_read(&r) == -1 && errno == EINVAL);
	}
	struct aiocb r = request(fd, buf, 512, 0);
	r.aio_sigevent.sigev_notify = SIGEV_THREAD;
	CHECK(aio_read(&r) == -1 && errno == EINVAL);
	/* All zeroes: SIGEV_SIGNAL with signal 0, which does not exist. */
	r = request(fd, buf, 512, 0);
	memset(&r.aio_sigevent, 0, sizeof r.aio_sigevent);
	CHECK(aio_read(&r) == 0 && wait_for(&r) == 0);
}

static void null_blocks(void)
{
	struct aiocb *volatile none = NULL;
	CHECK(aio_read(none) == -1 && errno == EINVAL);
	CHECK(aio_write(none) == -1 && errno == EINVAL);
	CHECK(aio_fsync(O_SYNC, none) == -1 && errno == EINVAL);
	CHECK(aio_error(none) == -1 && errno == EINVAL);
	CHECK(aio_return(none) == -1 && errno == EINVAL);
}

static void a_block_in_flight_is_left_alone(void)
{
	int p[2], fd = filled("f", 4096);
	CHECK(pipe(p) == 0);
	struct aiocb r = request(p[0], buf, 4, 0);
	CHECK(aio_read(&r) == 0);
	CHECK(aio_read(&r) == -1 && errno == EINVAL);
	CHECK(aio_fsync(O_SYNC, &r) == -1 && errno == EINVAL);
	struct aiocb *list[2] = { &r, &r };
	CHECK(lio_listio(LIO_NOWAIT, list, 2, NULL) == -1 && errno == EIO);
	r.aio_fildes = fd;
	CHECK(aio_read(&r) == -1 && errno == EINVAL);
	r.aio_fildes = p[0];
	CHECK(aio_error(&r) == EINPROGRESS);
	errno = 0;
	CHECK(aio_return(&r) == -1 && errno == 0);
	CHECK(write(p[1], "abcd", 4) == 4);
	CHECK(wait_for(&r) == 0 && aio_return(&r) == 4);
}

static void lists(void)
{
	int fd = filled("f", 4096);
	struct aiocb r = request(fd, buf, 512, 0);
	struct aiocb *list[1] = { &r };
	CHECK(lio_listio(7, list, 1, NULL) == -1 && errno == EINVAL);
	CHECK(lio_listio(-1, list, 1, NULL) == -1 && errno == EINVAL);
	CHECK(lio_listio(LIO_WAIT, list, -1, NULL) == -1 && errno == EINVAL);
	r.aio_lio_opcode = 77;
	CHECK(lio_listio(LIO_WAIT, list, 1, NULL) == -1 && errno == EIO);
	CHECK(aio_error(&r) == EINVAL);
}

static void a_list_that_is_too_long(void)
{
	int n = 100000;
	struct aiocb **list = calloc(n, sizeof *list);
	CHECK(lio_listio(LIO_NOWAIT, list, n, NULL) == -1 && errno == EINVAL);
	CHECK(lio_listio(LIO_NOWAIT, list, INT_MAX, NULL) == -1 && errno == EINVAL);
}

static void a_write_without_a_reader_is_epipe_and_no_signal(void)
{
	int p[2], s[2];
	signal(SIGPIPE, SIG_DFL);
	CHECK(pipe(p) == 0 && close(p[0]) == 0);
	CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, s) == 0 && close(s[0]) == 0);
	for (int i = 0; i < 20; i++) {
		struct aiocb w = request(i % 2 ? p[1] : s[1], buf, 100, 0);
		fails(aio_write, &w, EPIPE);
	}
}

static void a_file_size_limit_is_efbig_and_no_signal(void)
{
	signal(SIGXFSZ, SIG_DFL);
	int fd = filled("f", 4096);
	struct rlimit limit = { 8192, 8192 };
	CHECK(setrlimit(RLIMIT_FSIZE, &limit) == 0);
	struct aiocb w = request(fd, buf, 4096, 8192);
	fails(aio_write, &w, EFBIG);
	w = request(fd, buf, 4096, 6144);
	CHECK(aio_write(&w) == 0 && wait_for(&w) == 0 && aio_return(&w) == 2048);
}

static void too_many_requests_are_eagain(void)
{
	int p[2];
	CHECK(pipe(p) == 0);
	struct aiocb r[5];
	for (int i = 0; i < 4; i++) {
		r[i] = request(p[0], buf, 1, 0);
		CHECK(aio_read(&r[i]) == 0);
	}
	r[4] = request(p[0], buf, 1, 0);
	CHECK(aio_read(&r[4]) == -1 && errno == EAGAIN);
	struct aiocb *list[1] = { &r[4] };
	CHECK(lio_listio(LIO_NOWAIT, list, 1, NULL) == -1 && errno == EAGAIN);
	CHECK(aio_error(&r[4]) == EAGAIN);
	/* A cached read is not counted. */
	int fd = filled("f", 4096);
	struct aiocb hit = request(fd, buf, 512, 0);
	CHECK(aio_read(&hit) == 0 && aio_error(&hit) == 0);
	CHECK(write(p[1], "abcd", 4) == 4);
	for (int i = 0; i < 4; i++)
		CHECK(wait_for(&r[i]) == 0);
	CHECK(aio_read(&r[4]) == 0 && write(p[1], "e", 1) == 1 && wait_for(&r[4]) == 0);
}

TESTS(CASE(a_bad_descriptor_is_an_error_of_the_request), CASE(a_full_descriptor_table_is_eagain),
      CASE(bad_descriptors), CASE(bad_access_modes), CASE(argument_errors_fail_the_call),
      CASE(a_directory), CASE(bad_offsets_sizes_and_priorities), CASE(wild_pointers),
      CASE(wild_notifications), CASE(null_blocks), CASE(a_block_in_flight_is_left_alone),
      CASE(lists), CASE(a_list_that_is_too_long),
      CASE(a_write_without_a_reader_is_epipe_and_no_signal),
      CASE(a_file_size_limit_is_efbig_and_no_signal), CASE(too_many_requests_are_eagain))
