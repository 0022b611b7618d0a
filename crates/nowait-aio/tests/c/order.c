/* The order of requests, and requests that must not wait for others. */
#include "check.h"

static void appends_keep_their_order(void)
{
	int fd = open("f", O_RDWR | O_CREAT | O_TRUNC | O_APPEND, 0600);
	enum { N = 400 };
	static struct aiocb w[N];
	static uint32_t value[N];
	for (uint32_t i = 0; i < N; i++) {
		value[i] = i;
		/* The offset is ignored. */
		w[i] = request(fd, &value[i], 4, (off_t)(N - i) * 4096);
		CHECK(aio_write(&w[i]) == 0);
	}
	for (int i = 0; i < N; i++)
		CHECK(wait_for(&w[i]) == 0 && aio_return(&w[i]) == 4);
	uint32_t back[N + 1];
	CHECK(pread(fd, back, sizeof back, 0) == N * 4);
	for (uint32_t i = 0; i < N; i++)
		CHECK(back[i] == i);
}

static void streams(int in, int out)
{
	enum { N = 300 };
	static struct aiocb r[N], w[N];
	static uint32_t value[N], back[N];
	for (uint32_t i = 0; i < N; i++) {
		r[i] = request(in, &back[i], 4, 0);
		CHECK(aio_read(&r[i]) == 0);
	}
	for (uint32_t i = 0; i < N; i++) {
		value[i] = i;
		w[i] = request(out, &value[i], 4, 0);
		CHECK(aio_write(&w[i]) == 0);
	}
	for (uint32_t i = 0; i < N; i++) {
		CHECK(wait_for(&w[i]) == 0 && aio_return(&w[i]) == 4);
		CHECK(wait_for(&r[i]) == 0 && aio_return(&r[i]) == 4);
		CHECK(back[i] == i);
	}
}

static void pipes_keep_their_order(void)
{
	int p[2];
	CHECK(pipe(p) == 0);
	streams(p[0], p[1]);
}

static void sockets_keep_their_order(void)
{
	int s[2];
	CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, s) == 0);
	streams(s[0], s[1]);
	streams(s[1], s[0]);
}

static void terminals_keep_their_order(void)
{
	int master = posix_openpt(O_RDWR | O_NOCTTY);
	CHECK(master >= 0 && grantpt(master) == 0 && unlockpt(master) == 0);
	int slave = open(ptsname(master), O_RDWR | O_NOCTTY);
	CHECK(slave >= 0);
	char line[3][16] = { "", "", "" };
	struct aiocb r[3];
	for (int i = 0; i < 3; i++) {
		r[i] = request(slave, line[i], sizeof line[i], 0);
		CHECK(aio_read(&r[i]) == 0);
	}
	nap(10);
	CHECK(aio_error(&r[0]) == EINPROGRESS);
	CHECK(write(master, "one\ntwo\nthree\n", 14) == 14);
	for (int i = 0; i < 3; i++)
		CHECK(wait_for(&r[i]) == 0);
	CHECK(!strcmp(line[0], "one\n") && !strcmp(line[1], "two\n") && !strcmp(line[2], "three\n"));
}

static void a_large_write_to_a_pipe_is_whole(void)
{
	int p[2];
	CHECK(pipe(p) == 0);
	size_t n = 3 << 20, got = 0;
	unsigned char *out = malloc(n), *in = malloc(n);
	for (size_t i = 0; i < n; i++)
		out[i] = (unsigned char)(i / 4093);
	struct aiocb w = request(p[1], out, n, 0);
	CHECK(aio_write(&w) == 0);
	while (got < n) {
		ssize_t k = read(p[0], in + got, n - got);
		CHECK(k > 0);
		got += k;
	}
	CHECK(wait_for(&w) == 0 && aio_return(&w) == (ssize_t)n && memcmp(in, out, n) == 0);
}

static void a_nonblocking_pipe_is_eagain(void)
{
	int p[2];
	char c;
	CHECK(pipe2(p, O_NONBLOCK) == 0);
	struct aiocb r = request(p[0], &c, 1, 0);
	CHECK(aio_read(&r) == 0 && wait_for(&r) == EAGAIN && aio_return(&r) == -1);
}

static void the_end_of_a_pipe_is_an_empty_read(void)
{
	int p[2];
	char c;
	CHECK(pipe(p) == 0);
	struct aiocb r = request(p[0], &c, 1, 0);
	CHECK(aio_read(&r) == 0);
	nap(5);
	/* The program has the only write end: the library does not keep one open. */
	struct aiocb w = request(p[1], "x", 1, 0);
	CHECK(aio_write(&w) == 0 && wait_for(&w) == 0 && wait_for(&r) == 0);
	CHECK(aio_read(&r) == 0);
	CHECK(close(p[1]) == 0);
	CHECK(wait_for(&r) == 0 && aio_return(&r) == 0);
}

static void a_sync_waits_for_earlier_requests(void)
{
	int fd = filled("f", 4096), again = open("f", O_RDWR);
	enum { N = 50 };
	static struct aiocb w[N];
	static char block[N][65536];
	for (int round = 0; round < 5; round++) {
		for (int i = 0; i < N; i++) {
			w[i] = request(i % 2 ? fd : again, block[i], sizeof block[i],
				       (off_t)i * 65536);
			CHECK(aio_write(&w[i]) == 0);
		}
		struct aiocb s = request(fd, NULL, 0, 0);
		CHECK(aio_fsync(round % 2 ? O_SYNC : O_DSYNC, &s) == 0);
		CHECK(wait_for(&s) == 0);
		for (int i = 0; i < N; i++)
			CHECK(i % 2 == 0 || aio_error(&w[i]) == 0);
		for (int i = 0; i < N; i++)
			CHECK(wait_for(&w[i]) == 0);
	}
}

static void blocked_pipes_delay_no_other_request(void)
{
	enum { N = 200 };
	static struct aiocb r[N];
	static char c[N];
	int p[N][2];
	for (int i = 0; i < N; i++) {
		CHECK(pipe(p[i]) == 0);
		r[i] = request(p[i][0], &c[i], 1, 0);
		CHECK(aio_read(&r[i]) == 0);
	}
	int fd = filled("f", 1 << 20);
	evict(fd);
	static char block[4096];
	struct aiocb cold = request(fd, block, sizeof block, 65536);
	CHECK(aio_read(&cold) == 0 && wait_for(&cold) == 0);
	struct aiocb w = request(fd, block, sizeof block, 0), s = request(fd, NULL, 0, 0);
	CHECK(aio_write(&w) == 0 && wait_for(&w) == 0);
	CHECK(aio_fsync(O_SYNC, &s) == 0 && wait_for(&s) == 0);
	for (int i = N - 1; i >= 0; i--) {
		CHECK(write(p[i][1], "x", 1) == 1);
		CHECK(wait_for(&r[i]) == 0);
	}
}

static void twenty_thousand_requests(void)
{
	enum { N = 20000 };
	static struct aiocb r[N];
	static unsigned char block[N][512];
	struct rlimit limit = { 64, 64 };
	CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
	int p[2], fd = filled("f", 4 << 20);
	CHECK(pipe(p) == 0);
	/* All requests are in flight at once. Half of them wait for a pipe. */
	evict(fd);
	for (int i = 0; i < N; i++) {
		r[i] = request(i % 2 ? p[0] : fd, block[i], i % 2 ? 1 : 512,
			       (off_t)(i % 8192) * 512);
		CHECK(aio_read(&r[i]) == 0);
	}
	for (int i = 0; i < N; i += 2) {
		CHECK(wait_for(&r[i]) == 0 && aio_return(&r[i]) == 512);
		CHECK(block[i][0] == (unsigned char)(i % 8192));
	}
	/* The first 50 one by one, the rest a hundred at a time. */
	for (int i = 1, many = 1; i < N; many = i > 100 ? 100 : 1) {
		CHECK(write(p[1], block, many) == many);
		for (int k = 0; k < many && i < N; k++, i += 2)
			CHECK(wait_for(&r[i]) == 0 && aio_return(&r[i]) == 1);
	}
}

TESTS(CASE(appends_keep_their_order), CASE(pipes_keep_their_order),
      CASE(sockets_keep_their_order), CASE(terminals_keep_their_order),
      CASE(a_large_write_to_a_pipe_is_whole), CASE(a_nonblocking_pipe_is_eagain),
      CASE(the_end_of_a_pipe_is_an_empty_read), CASE(a_sync_waits_for_earlier_requests),
      CASE(blocked_pipes_delay_no_other_request), CASE(twenty_thousand_requests))
