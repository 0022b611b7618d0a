/* Requests whose data must be on the device when they are done. The test then cuts the power. */
#include "check.h"

enum { LEN = 300000 };
static char bytes[LEN];

/* A file that has its name, and is empty. */
static int named(const char *name, int flags)
{
	int fd = open(name, O_RDWR | O_CREAT | O_EXCL | flags, 0600);
	int directory = open(".", O_RDONLY | O_DIRECTORY);
	CHECK(fd >= 0 && directory >= 0);
	CHECK(fsync(fd) == 0 && fsync(directory) == 0 && close(directory) == 0);
	return fd;
}

static void finish(struct aiocb *cb, ssize_t result)
{
	CHECK(wait_for(cb) == 0);
	CHECK(aio_return(cb) == result);
}

/* aio_fsync covers the requests that were submitted before it, also on another descriptor of the file. */
static void write_and_sync(const char *name, int op, int other)
{
	int fd = named(name, 0), sync = other ? open(name, O_RDWR) : fd;
	struct aiocb halves[2], all;
	for (int i = 0; i < 2; i++) {
		halves[i] = request(fd, bytes + i * (LEN / 2), LEN / 2, (off_t)i * (LEN / 2));
		CHECK(aio_write(&halves[i]) == 0);
	}
	all = request(sync, NULL, 0, 0);
	CHECK(aio_fsync(op, &all) == 0);
	finish(&all, 0);
	for (int i = 0; i < 2; i++)
		finish(&halves[i], LEN / 2);
}

static void write_synced(const char *name, int flags)
{
	int fd = named(name, flags);
	struct aiocb cb = request(fd, bytes, LEN, 0);
	CHECK(aio_write(&cb) == 0);
	finish(&cb, LEN);
	close(fd);
}

static void list_synced(void)
{
	int fd = named("list", O_DSYNC);
	struct aiocb halves[2], *list[2] = { &halves[0], &halves[1] };
	for (int i = 0; i < 2; i++) {
		halves[i] = request(fd, bytes + i * (LEN / 2), LEN / 2, (off_t)i * (LEN / 2));
		halves[i].aio_lio_opcode = LIO_WRITE;
	}
	CHECK(lio_listio(LIO_WAIT, list, 2, NULL) == 0);
	for (int i = 0; i < 2; i++)
		finish(&halves[i], LEN / 2);
}

static void durable(void)
{
	for (int i = 0; i < LEN; i++)
		bytes[i] = (char)(1 + i % 251);
	write_and_sync("sync", O_SYNC, 0);
	write_and_sync("dsync", O_DSYNC, 0);
	write_and_sync("other", O_SYNC, 1);
	write_synced("o_sync", O_SYNC);
	write_synced("o_dsync", O_DSYNC);
	list_synced();
}

TESTS(CASE(durable))
