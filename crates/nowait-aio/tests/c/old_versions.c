/* References of old programs, with the versions from before glibc merged librt into libc. */
#include "check.h"

#define OLD(name, version) __asm__(".symver old_" #name "," #name "@" version)
#if defined(__x86_64__)
#define FIRST "GLIBC_2.2.5"
#define LISTS "GLIBC_2.4"
#else
#define FIRST "GLIBC_2.17"
#define LISTS "GLIBC_2.17"
#endif

extern int old_aio_read(struct aiocb *);
extern int old_aio_error(const struct aiocb *);
extern ssize_t old_aio_return(struct aiocb *);
extern int old_aio_suspend(const struct aiocb *const[], int, const struct timespec *);
extern int old_lio_listio(int, struct aiocb *const[], int, struct sigevent *);
OLD(aio_read, FIRST);
OLD(aio_error, FIRST);
OLD(aio_return, FIRST);
OLD(aio_suspend, FIRST);
OLD(lio_listio, LISTS);

static char buf[512];

static void single(void)
{
	int fd = filled("f", 65536);
	evict(fd);
	struct aiocb r = request(fd, buf, sizeof buf, 512);
	const struct aiocb *list[] = { &r };
	CHECK(old_aio_read(&r) == 0);
	while (old_aio_error(&r) == EINPROGRESS)
		CHECK(old_aio_suspend(list, 1, NULL) == 0);
	CHECK(old_aio_return(&r) == 512 && buf[0] == 1);
}

static void list(void)
{
	int fd = filled("f", 65536);
	struct aiocb r = request(fd, buf, sizeof buf, 512);
	struct aiocb *all[] = { &r };
	r.aio_lio_opcode = LIO_READ;
	CHECK(old_lio_listio(LIO_WAIT, all, 1, NULL) == 0);
	CHECK(old_aio_return(&r) == 512 && buf[0] == 1);
}

TESTS(CASE(single), CASE(list))
