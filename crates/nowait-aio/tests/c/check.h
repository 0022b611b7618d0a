/* Shared by the C tests: named cases, each in its own process, and a CHECK that prints its place. */
#define _GNU_SOURCE
#include <aio.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define CHECK(cond)                                                                            \
	do {                                                                                   \
		if (!(cond)) {                                                                 \
			int e_ = errno;                                                        \
			dprintf(2, "%s:%d: %s (errno %d: %s)\n", __FILE__, __LINE__, #cond, e_, \
				strerror(e_));                                                 \
			_exit(1);                                                              \
		}                                                                              \
	} while (0)

/* A step that takes this many seconds hangs. */
enum { HANGS = 300 };

struct test {
	const char *name;
	void (*run)(void);
};

/* True if nowait's library is loaded. */
static inline int ours(void) { return getenv("NOWAIT_AIO_OURS") != NULL; }

static inline struct aiocb request(int fd, void *buf, size_t n, off_t offset)
{
	struct aiocb cb;
	memset(&cb, 0, sizeof cb);
	cb.aio_fildes = fd;
	cb.aio_buf = buf;
	cb.aio_nbytes = n;
	cb.aio_offset = offset;
	cb.aio_sigevent.sigev_notify = SIGEV_NONE;
	return cb;
}

/* Waits for one request; returns its error. */
static inline int wait_for(struct aiocb *cb)
{
	const struct aiocb *list[1] = { cb };
	while (aio_error(cb) == EINPROGRESS)
		if (aio_suspend(list, 1, NULL) != 0)
			CHECK(errno == EINTR);
	return aio_error(cb);
}

/* A file of n bytes, byte i being the low byte of i / 512. */
static inline int filled(const char *name, size_t n)
{
	int fd = open(name, O_RDWR | O_CREAT | O_TRUNC, 0600);
	CHECK(fd >= 0);
	unsigned char block[512];
	for (size_t at = 0; at < n; at += sizeof block) {
		memset(block, (int)(at / 512), sizeof block);
		CHECK(write(fd, block, sizeof block) == sizeof block);
	}
	return fd;
}

/* Evicts a file from the page cache. */
static inline void evict(int fd)
{
	CHECK(fdatasync(fd) == 0);
	CHECK(posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED) == 0);
}

static inline void nap(int ms)
{
	struct timespec t = { ms / 1000, ms % 1000 * 1000000L };
	while (nanosleep(&t, &t) != 0)
		CHECK(errno == EINTR);
}

/* A thread that gets signals until its wait is over. On a busy machine the first one may come too early. */
struct kicked {
	pthread_t thread;
	int signo;
	volatile int over;
};

static inline void *kicks(void *whom)
{
	struct kicked *kicked = whom;
	nap(50);
	while (!kicked->over) {
		pthread_kill(kicked->thread, kicked->signo);
		nap(50);
	}
	return NULL;
}

static inline double now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec / 1e9;
}

/* A case of TESTS. */
#define CASE(name) { #name, name }

#define TESTS(...)                                                                             \
	int main(int argc, char **argv)                                                        \
	{                                                                                      \
		static const struct test all[] = { __VA_ARGS__ };                              \
		for (size_t i = 0; i < sizeof all / sizeof *all; i++) {                        \
			if (argc < 2)                                                          \
				puts(all[i].name);                                             \
			else if (strcmp(argv[1], all[i].name) == 0) {                          \
				all[i].run();                                                  \
				return 0;                                                      \
			}                                                                      \
		}                                                                              \
		return argc < 2 ? 0 : 2;                                                       \
	}
