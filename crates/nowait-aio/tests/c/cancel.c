/* aio_cancel: its three answers, for one request and for all requests on a file. */
#include "check.h"

static char buf[4096];

static void one_request(void)
{
	int p[2];
	CHECK(pipe(p) == 0);
	struct aiocb r[3];
	for (int i = 0; i < 3; i++) {
		r[i] = request(p[0], &buf[i], 1, 0);
		CHECK(aio_read(&r[i]) == 0);
	}
	CHECK(aio_cancel(p[0], &r[1]) == AIO_CANCELED);
	CHECK(aio_error(&r[1]) == ECANCELED && aio_return(&r[1]) == -1);
	CHECK(aio_error(&r[0]) == EINPROGRESS && aio_error(&r[2]) == EINPROGRESS);
	CHECK(aio_cancel(p[0], &r[1]) == AIO_ALLDONE);
	CHECK(write(p[1], "ab", 2) == 2);
	CHECK(wait_for(&r[0]) == 0 && wait_for(&r[2]) == 0);
	CHECK(buf[0] == 'a' && buf[2] == 'b');
	CHECK(aio_cancel(p[0], &r[0]) == AIO_ALLDONE && aio_cancel(p[0], NULL) == AIO_ALLDONE);
}

static void the_first_waiting_request(void)
{
	int p[2];
	CHECK(pipe(p) == 0);
	struct aiocb a = request(p[0], &buf[0], 1, 0), b = request(p[0], &buf[1], 1, 0);
	CHECK(aio_read(&a) == 0 && aio_read(&b) == 0);
	nap(5);
	CHECK(aio_cancel(p[0], &a) == AIO_CANCELED);
	CHECK(write(p[1], "x", 1) == 1 && wait_for(&b) == 0 && buf[1] == 'x');
}

static void all_requests_on_a_file_and_no_other(void)
{
	int p[2], q[2];
	CHECK(pipe(p) == 0 && pipe(q) == 0);
	struct aiocb r[20];
	for (int i = 0; i < 20; i++) {
		r[i] = request(i % 2 ? p[0] : q[0], buf, 1, 0);
		CHECK(aio_read(&r[i]) == 0);
	}
	nap(5);
	CHECK(aio_cancel(p[0], NULL) == AIO_CANCELED);
	for (int i = 0; i < 20; i++)
		CHECK(aio_error(&r[i]) == (i % 2 ? ECANCELED : EINPROGRESS));
	CHECK(write(q[1], "0123456789", 10) == 10);
	for (int i = 0; i < 20; i += 2)
		CHECK(wait_for(&r[i]) == 0);
}

static void a_request_that_has_begun_is_not_cancelled(void)
{
	int p[2];
	CHECK(pipe(p) == 0);
	size_t n = 1 << 20;
	char *big = calloc(1, n);
	struct aiocb w = request(p[1], big, n, 0), next = request(p[1], buf, 1, 0);
	CHECK(aio_write(&w) == 0 && aio_write(&next) == 0);
	struct pollfd begun = { .fd = p[0], .events = POLLIN };
	CHECK(poll(&begun, 1, -1) == 1);
	CHECK(aio_cancel(p[1], NULL) == AIO_NOTCANCELED);
	CHECK(aio_error(&w) == EINPROGRESS && aio_error(&next) == ECANCELED);
	char *in = malloc(n);
	for (size_t got = 0; got < n;) {
		ssize_t k = read(p[0], in, n - got);
		CHECK(k > 0);
		got += k;
	}
	CHECK(wait_for(&w) == 0 && aio_return(&w) == (ssize_t)n);
}

/* The write waits for room, and has not written a byte. */
static void a_write_that_waits_is_not_cancelled(void)
{
	int p[2], s[2], tight = 4096;
	CHECK(pipe(p) == 0 && socketpair(AF_UNIX, SOCK_STREAM, 0, s) == 0);
	CHECK(setsockopt(s[1], SOL_SOCKET, SO_SNDBUF, &tight, sizeof tight) == 0);
	int from[] = { p[0], s[0] }, to[] = { p[1], s[1] };
	for (int i = 0; i < 2; i++) {
		size_t n = 0;
		CHECK(fcntl(to[i], F_SETFL, O_NONBLOCK) == 0);
		for (ssize_t k; (k = write(to[i], buf, sizeof buf)) > 0;)
			n += k;
		CHECK(fcntl(to[i], F_SETFL, 0) == 0);
		struct aiocb w = request(to[i], buf, sizeof buf, 0), next = w;
		CHECK(aio_write(&w) == 0);
		nap(200);
		CHECK(aio_write(&next) == 0);
		CHECK(aio_cancel(to[i], &w) == AIO_NOTCANCELED);
		CHECK(aio_cancel(to[i], &next) == AIO_CANCELED && aio_error(&next) == ECANCELED);
		CHECK(aio_cancel(to[i], NULL) == AIO_NOTCANCELED);
		CHECK(aio_error(&w) == EINPROGRESS);
		static char in[4096];
		for (size_t got = 0, all = n + sizeof buf; got < all;) {
			ssize_t k = read(from[i], in, sizeof in);
			CHECK(k > 0);
			got += k;
		}
		CHECK(wait_for(&w) == 0 && aio_return(&w) == sizeof buf);
	}
}

/* The block is checked first, also if its request is done or was never submitted. */
static void a_descriptor_other_than_the_blocks(void)
{
	int p[2], fd = filled("f", 4096);
	CHECK(pipe(p) == 0);
	struct aiocb done = request(fd, buf, 512, 0), never = request(fd, buf, 512, 0);
	CHECK(aio_read(&done) == 0 && wait_for(&done) == 0);
	errno = 0;
	CHECK(aio_cancel(p[0], &done) == -1 && errno == EINVAL);
	CHECK(aio_cancel(p[0], &never) == -1 && errno == EINVAL);
	CHECK(aio_cancel(-1, &done) == -1 && errno == EBADF);
	CHECK(aio_cancel(12345, &never) == -1 && errno == EBADF);
	CHECK(aio_cancel(fd, &done) == AIO_ALLDONE && aio_cancel(fd, &never) == AIO_ALLDONE);
}

/* The request is cancelled although its number now belongs to another file. */
static void a_named_request_whose_number_was_reused(void)
{
	int p[2], q[2];
	CHECK(pipe(p) == 0 && pipe(q) == 0);
	int fd = dup(p[0]);
	struct aiocb first = request(fd, buf, 1, 0), old = request(fd, buf, 1, 0);
	CHECK(aio_read(&first) == 0);
	nap(20);
	CHECK(aio_read(&old) == 0);
	CHECK(dup2(q[0], fd) == fd);
	CHECK(aio_cancel(fd, &old) == AIO_CANCELED && aio_error(&old) == ECANCELED);
	CHECK(aio_error(&first) == EINPROGRESS);
	CHECK(write(p[1], "x", 1) == 1 && write(q[1], "y", 1) == 1 && wait_for(&first) == 0);
}

static volatile sig_atomic_t notified, cancelled;

static void handler(int signo, siginfo_t *info, void *context)
{
	(void)signo, (void)context;
	cancelled += aio_error(info->si_value.sival_ptr) == ECANCELED;
	notified++;
}

static void cancelled_requests_notify(void)
{
	struct sigaction action = { .sa_sigaction = handler, .sa_flags = SA_SIGINFO };
	CHECK(sigaction(SIGRTMIN, &action, NULL) == 0);
	int p[2];
	CHECK(pipe(p) == 0);
	struct aiocb r[10], *list[10];
	for (int i = 0; i < 10; i++) {
		r[i] = request(p[0], buf, 1, 0);
		r[i].aio_lio_opcode = LIO_READ;
		r[i].aio_sigevent.sigev_notify = SIGEV_SIGNAL;
		r[i].aio_sigevent.sigev_signo = SIGRTMIN;
		r[i].aio_sigevent.sigev_value.sival_ptr = &r[i];
		list[i] = &r[i];
	}
	struct sigevent event = r[0].aio_sigevent;
	CHECK(lio_listio(LIO_NOWAIT, list, 10, &event) == 0);
	nap(5);
	CHECK(aio_cancel(p[0], NULL) == AIO_CANCELED);
	while (notified < 11)
		sched_yield();
	CHECK(notified == 11 && cancelled == 11);
}

static void a_waiting_thread_is_woken(void);

static struct aiocb waited;

static void *cancels(void *unused)
{
	(void)unused;
	nap(30);
	CHECK(aio_cancel(waited.aio_fildes, &waited) == AIO_CANCELED);
	return NULL;
}

static void a_waiting_thread_is_woken(void)
{
	int p[2];
	pthread_t t;
	CHECK(pipe(p) == 0);
	waited = request(p[0], buf, 1, 0);
	CHECK(aio_read(&waited) == 0);
	CHECK(pthread_create(&t, NULL, cancels, NULL) == 0);
	CHECK(wait_for(&waited) == ECANCELED);
	CHECK(pthread_join(t, NULL) == 0);
}

static void odd_arguments(void)
{
	int p[2], fd = filled("f", 4096);
	CHECK(pipe(p) == 0);
	struct aiocb r = request(p[0], buf, 1, 0);
	CHECK(aio_cancel(fd, NULL) == AIO_ALLDONE);
	CHECK(aio_read(&r) == 0);
	CHECK(aio_cancel(fd, &r) == -1 && errno == EINVAL);
	CHECK(aio_cancel(fd, NULL) == AIO_ALLDONE);
	CHECK(aio_error(&r) == EINPROGRESS);
	CHECK(aio_cancel(p[0], &r) == AIO_CANCELED);
}

static void requests_of_another_file_with_the_same_number_stay(void)
{
	int p[2], q[2];
	CHECK(pipe(p) == 0 && pipe(q) == 0);
	int fd = dup(p[0]);
	struct aiocb old = request(fd, buf, 1, 0), new = request(fd, buf, 1, 0);
	CHECK(aio_read(&old) == 0);
	CHECK(dup2(q[0], fd) == fd);
	CHECK(aio_read(&new) == 0);
	nap(5);
	CHECK(aio_cancel(fd, NULL) == AIO_CANCELED);
	CHECK(aio_error(&new) == ECANCELED && aio_error(&old) == EINPROGRESS);
	CHECK(write(p[1], "x", 1) == 1 && wait_for(&old) == 0);
}

static void many_writes_end_one_way_or_the_other(void)
{
	int fd = filled("f", 4096);
	enum { N = 500 };
	static struct aiocb w[N];
	static char block[N][65536];
	for (int i = 0; i < N; i++) {
		w[i] = request(fd, block[i], sizeof block[i], 0);
		CHECK(aio_write(&w[i]) == 0);
	}
	int answer = aio_cancel(fd, NULL);
	CHECK(answer == AIO_CANCELED || answer == AIO_NOTCANCELED || answer == AIO_ALLDONE);
	for (int i = 0; i < N; i++) {
		int e = wait_for(&w[i]);
		CHECK(e == 0 ? aio_return(&w[i]) == sizeof block[i] : e == ECANCELED);
		CHECK(answer != AIO_ALLDONE || e == 0);
	}
}

TESTS(CASE(one_request), CASE(the_first_waiting_request),
      CASE(all_requests_on_a_file_and_no_other), CASE(a_request_that_has_begun_is_not_cancelled),
      CASE(a_write_that_waits_is_not_cancelled), CASE(a_descriptor_other_than_the_blocks),
      CASE(a_named_request_whose_number_was_reused), CASE(cancelled_requests_notify),
      CASE(a_waiting_thread_is_woken), CASE(odd_arguments),
      CASE(requests_of_another_file_with_the_same_number_stay),
      CASE(many_writes_end_one_way_or_the_other))
