/* Reads of a file that is not cached, one at a time. */
#include "check.h"

#define READS 1500

static void one_at_a_time(void)
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

TESTS(CASE(one_at_a_time))
