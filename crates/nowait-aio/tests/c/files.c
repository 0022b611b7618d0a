/* Descriptors that are closed, reused or locked while requests are in flight. */
#include "check.h"

static char buf[4096];

static void a_request_outlives_its_descriptor(void)
{
	int p[2];
	CHECK(pipe(p) == 0);
	struct aiocb r = request(p[0], buf, 5, 0);
	CHECK(aio_read(&r) == 0 && close(p[0]) == 0);
	CHECK(write(p[1], "hello", 5) == 5);
	CHECK(wait_for(&r) == 0 && aio_return(&r) == 5 && !memcmp(buf, "hello", 5));
	enum { N = 300 };
	static struct aiocb w[N];
	static char block[N][512];
	for (int i = 0; i < N; i++) {
		int fd = open("f", O_RDWR | O_CREAT, 0600);
		memset(block[i], i, 512);
		w[i] = request(fd, block[i], 512, (off_t)i * 512);
		CHECK(aio_write(&w[i]) == 0 && close(fd) == 0);
	}
	for (int i = 0; i < N; i++)
		CHECK(wait_for(&w[i]) == 0 && aio_return(&w[i]) == 512);
	int fd = open("f", O_RDONLY);
	for (int i = 0; i < N; i++)
		CHECK(pread(fd, buf, 512, (off_t)i * 512) == 512 && buf[17] == (char)i);
}

static void a_reused_number_is_another_file(void)
{
	enum { N = 200 };
	static struct aiocb w[N];
	static char block[N][512];
	int one = open("one", O_RDWR | O_CREAT | O_TRUNC, 0600);
	int two = open("two", O_RDWR | O_CREAT | O_TRUNC, 0600), fd = dup(one);
	for (int i = 0; i < N; i++) {
		CHECK(dup2(i % 2 ? two : one, fd) == fd);
		memset(block[i], i % 2 ? '2' : '1', 512);
		w[i] = request(fd, block[i], 512, (off_t)(i / 2) * 512);
		CHECK(aio_write(&w[i]) == 0);
	}
	int p[2];
	CHECK(pipe(p) == 0 && dup2(p[1], fd) == fd);
	for (int i = 0; i < N; i++)
		CHECK(wait_for(&w[i]) == 0 && aio_return(&w[i]) == 512);
	for (int i = 0; i < N; i++) {
		CHECK(pread(i % 2 ? two : one, buf, 512, (off_t)(i / 2) * 512) == 512);
		CHECK(buf[0] == (i % 2 ? '2' : '1') && buf[511] == buf[0]);
	}
	/* Nothing was written to the file that has the number now. */
	struct pollfd readable = { p[0], POLLIN, 0 };
	CHECK(poll(&readable, 1, 0) == 0);
}

/* True if another process cannot lock the file. */
static int locked(const char *name)
{
	pid_t child = fork();
	if (child == 0) {
		int fd = open(name, O_RDWR);
		struct flock all = { .l_type = F_WRLCK, .l_whence = SEEK_SET };
		_exit(fcntl(fd, F_SETLK, &all) == 0 ? 0 : 1);
	}
	int status;
	CHECK(child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status));
	return WEXITSTATUS(status);
}

static void fcntl_locks_stay(void)
{
	int fd = filled("f", 1 << 20);
	struct flock all = { .l_type = F_WRLCK, .l_whence = SEEK_SET };
	CHECK(fcntl(fd, F_SETLK, &all) == 0 && locked("f"));
	for (int i = 0; i < 50; i++) {
		struct aiocb w = request(fd, buf, 4096, i * 4096), s = request(fd, NULL, 0, 0);
		CHECK(aio_write(&w) == 0 && wait_for(&w) == 0);
		CHECK(aio_fsync(O_SYNC, &s) == 0 && wait_for(&s) == 0);
		evict(fd);
		struct aiocb r = request(fd, buf, 4096, i * 4096);
		CHECK(aio_read(&r) == 0 && wait_for(&r) == 0);
		if (i % 10 == 0)
			nap(2);
	}
	nap(20);
	CHECK(locked("f"));
	all.l_type = F_UNLCK;
	CHECK(fcntl(fd, F_SETLK, &all) == 0 && !locked("f"));
}

static void a_request_that_is_done_holds_no_file(void)
{
	for (int i = 0; i < 200; i++) {
		int fd = open("f", O_RDWR | O_CREAT, 0600);
		CHECK(flock(fd, LOCK_EX) == 0);
		struct aiocb w = request(fd, buf, 4096, 0);
		CHECK(aio_write(&w) == 0 && wait_for(&w) == 0);
		/* The lock ends with the last descriptor, so there must be no other. A worker of the ring
		   that has carried out the write has the file until it runs again. */
		CHECK(close(fd) == 0);
		int other = open("f", O_RDWR), tries = 60000;
		while (flock(other, LOCK_EX | LOCK_NB) != 0 && --tries)
			nap(1);
		CHECK(tries > 0);
		close(other);
	}
}

static int descriptors(void)
{
	int n = 0;
	for (int fd = 0; fd < 1024; fd++)
		n += fcntl(fd, F_GETFD) != -1;
	return n;
}

static void the_descriptor_table_stays_the_same(void)
{
	int fd = filled("f", 4 << 20);
	struct aiocb first = request(fd, buf, 4096, 0);
	CHECK(aio_write(&first) == 0 && wait_for(&first) == 0);
	int before = descriptors();
	enum { N = 1000 };
	static struct aiocb r[N];
	static char block[N][512];
	evict(fd);
	int p[2];
	CHECK(pipe(p) == 0);
	for (int i = 0; i < N; i++) {
		r[i] = request(i % 2 ? p[0] : fd, block[i], i % 2 ? 1 : 512, (off_t)i * 4096);
		CHECK(aio_read(&r[i]) == 0);
		CHECK(i % 100 || descriptors() == before + 2);
	}
	for (int i = 1; i < N; i += 2)
		CHECK(write(p[1], "x", 1) == 1);
	for (int i = 0; i < N; i++)
		CHECK(wait_for(&r[i]) == 0);
	CHECK(descriptors() == before + 2);
	/* The program gets the lowest numbers. */
	close(p[0]);
	CHECK(open("f", O_RDONLY) == p[0]);
}

static void the_program_may_close_everything(void)
{
	for (int round = 0; round < 5; round++) {
		int fd = filled("f", 65536), p[2];
		CHECK(pipe(p) == 0);
		struct aiocb r = request(p[0], buf, 4, 0), w = request(fd, buf, 4096, 0);
		CHECK(aio_read(&r) == 0 && aio_write(&w) == 0);
		int keep = p[1];
		for (int other = 3; other < 4096; other++)
			if (other != keep)
				close(other);
		/* All numbers belong to other files now. */
		int null = open("/dev/null", O_RDWR);
		for (int other = 3; other < 1024; other++)
			if (other != keep)
				dup2(null, other);
		CHECK(write(keep, "abcd", 4) == 4);
		CHECK(wait_for(&r) == 0 && aio_return(&r) == 4 && wait_for(&w) == 0);
		for (int other = 3; other < 1024; other++)
			close(other);
		fd = filled("f", 65536);
		evict(fd);
		r = request(fd, buf, 4096, 4096);
		w = request(fd, buf, 512, 0);
		CHECK(aio_write(&w) == 0 && wait_for(&w) == 0 && aio_return(&w) == 512);
		CHECK(aio_read(&r) == 0 && wait_for(&r) == 0 && aio_return(&r) == 4096);
		close(fd);
	}
}

static void many_opens_of_one_file_are_many_files(void)
{
	/* Each open file has its own flags. */
	int plain = filled("f", 4096), append = open("f", O_WRONLY | O_APPEND);
	enum { N = 100 };
	static struct aiocb w[N];
	for (int i = 0; i < N; i++) {
		w[i] = request(i % 2 ? append : plain, "0123456789", 10, 0);
		CHECK(aio_write(&w[i]) == 0);
	}
	for (int i = 0; i < N; i++)
		CHECK(wait_for(&w[i]) == 0);
	CHECK(lseek(plain, 0, SEEK_END) == 4096 + N / 2 * 10);
}

TESTS(CASE(a_request_outlives_its_descriptor), CASE(a_reused_number_is_another_file),
      CASE(fcntl_locks_stay), CASE(a_request_that_is_done_holds_no_file),
      CASE(the_descriptor_table_stays_the_same), CASE(the_program_may_close_everything),
      CASE(many_opens_of_one_file_are_many_files))
