/* Reads of a file that is not cached, one at a time. */
#include "check.h"

#define READS 1500

static void read_one_at_a_time(void)
{
	static char buf[4096];
	int fd = filled("f", 4096 * 4);
	CHECK(posix_fadvise(fd, 0, 0, POSIX_FADV_RANDOM) == 0);
	for (int i = 0; i < READS; i++) {
		evict(fd);
		struct aiocb r = request(fd, buf, sizeof buf, 4096 * (i % 4));
		CHECK(aio_read(&r) == 0 && wait_for(&r) == 0);
		CHECK(aio_return(&r) == sizeof buf);
	}
}

static void alone(void)
{
	read_one_at_a_time();
}

static void beside_another_request(void)
{
	static char byte;
	int p[2];
	CHECK(pipe(p) == 0);
	struct aiocb pending = request(p[0], &byte, 1, 0);
	CHECK(aio_read(&pending) == 0);
	read_one_at_a_time();
	CHECK(aio_error(&pending) == EINPROGRESS && write(p[1], "x", 1) == 1);
	CHECK(wait_for(&pending) == 0);
}

TESTS(CASE(alone), CASE(beside_another_request))
