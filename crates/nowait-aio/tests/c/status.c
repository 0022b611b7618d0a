/* Requests, their status, and their return values. */
#include "check.h"

static void a_write_and_a_read_transfer_the_bytes(void)
{
	int fd = open("f", O_RDWR | O_CREAT | O_TRUNC, 0600);
	char out[9000], in[9000];
	memset(out, 'x', sizeof out);
	struct aiocb w = request(fd, out, sizeof out, 100);
	CHECK(aio_write(&w) == 0);
	CHECK(wait_for(&w) == 0 && aio_return(&w) == sizeof out);
	struct aiocb r = request(fd, in, sizeof in, 100);
	CHECK(aio_read(&r) == 0);
	CHECK(wait_for(&r) == 0 && aio_return(&r) == sizeof in);
	CHECK(memcmp(in, out, sizeof in) == 0);
}

static void a_read_is_short_only_at_the_end(void)
{
	int fd = filled("f", 1 << 20);
	evict(fd);
	char *in = malloc(1 << 20);
	struct aiocb r = request(fd, in, 1 << 20, 4096);
	CHECK(aio_read(&r) == 0 && wait_for(&r) == 0);
	CHECK(aio_return(&r) == (1 << 20) - 4096);
	CHECK((unsigned char)in[0] == 8 && (unsigned char)in[512] == 9);
	r = request(fd, in, 100, 2 << 20);
	CHECK(aio_read(&r) == 0 && wait_for(&r) == 0 && aio_return(&r) == 0);
	r = request(fd, in, 0, 0);
	CHECK(aio_read(&r) == 0 && wait_for(&r) == 0 && aio_return(&r) == 0);
}

static void a_cached_read_is_done_within_the_call(void)
{
	int fd = filled("f", 1 << 16);
	char in[4096];
	for (int i = 0; i < 100; i++) {
		struct aiocb r = request(fd, in, sizeof in, i % 16 * 4096);
		CHECK(aio_read(&r) == 0);
		CHECK(aio_error(&r) == 0);
		CHECK(aio_return(&r) == sizeof in && (unsigned char)in[0] == i % 16 * 8);
	}
}

static void a_reused_number_has_a_new_history(void)
{
	char in[4096];
	int cold = filled("cold", 8 << 20);
	evict(cold);
	posix_fadvise(cold, 0, 0, POSIX_FADV_RANDOM);
	for (int i = 0; i < 300; i++) {
		struct aiocb r = request(cold, in, sizeof in, (off_t)(i * 37 % 2048) * 4096);
		CHECK(aio_read(&r) == 0 && wait_for(&r) == 0);
	}
	int hot = filled("hot", 1 << 16);
	CHECK(dup2(hot, cold) == cold);
	for (int i = 0; i < 10; i++) {
		struct aiocb r = request(cold, in, sizeof in, 4096);
		CHECK(aio_read(&r) == 0 && aio_error(&r) == 0);
	}
}

static void a_reused_number_is_tried_after_a_refusal(void)
{
	char in[4096] = "";
	/* tmpfs refuses RWF_NOWAIT. */
	int number = memfd_create("file", 0);
	CHECK(number >= 0 && write(number, in, sizeof in) == sizeof in);
	for (int i = 0; i < 5; i++) {
		struct aiocb r = request(number, in, sizeof in, 0);
		CHECK(aio_read(&r) == 0 && wait_for(&r) == 0 && aio_return(&r) == sizeof in);
	}
	int hot = filled("hot", 1 << 16);
	CHECK(dup2(hot, number) == number);
	for (int i = 0; i < 10; i++) {
		struct aiocb r = request(number, in, sizeof in, 4096);
		CHECK(aio_read(&r) == 0 && aio_error(&r) == 0);
	}
}

static void the_file_position_does_not_move(void)
{
	int fd = filled("f", 65536);
	char buf[4096] = "";
	CHECK(lseek(fd, 1234, SEEK_SET) == 1234);
	struct aiocb r = request(fd, buf, sizeof buf, 0), w = request(fd, buf, sizeof buf, 8192);
	CHECK(aio_read(&r) == 0 && wait_for(&r) == 0);
	evict(fd);
	CHECK(aio_read(&r) == 0 && wait_for(&r) == 0);
	CHECK(aio_write(&w) == 0 && wait_for(&w) == 0);
	CHECK(lseek(fd, 0, SEEK_CUR) == 1234);
	CHECK(fcntl(fd, F_SETFL, O_APPEND) == 0);
	CHECK(aio_write(&w) == 0 && wait_for(&w) == 0);
	CHECK(lseek(fd, 0, SEEK_CUR) == 1234);
	CHECK(lseek(fd, 0, SEEK_END) == 65536 + 4096);
}

static void a_block_can_be_used_again(void)
{
	int fd = filled("f", 65536);
	char buf[512];
	struct aiocb r = request(fd, buf, sizeof buf, 0);
	for (int i = 0; i < 128; i++) {
		r.aio_offset = i * 512;
		if (i % 16 == 0)
			evict(fd);
		CHECK(aio_read(&r) == 0 && wait_for(&r) == 0);
		CHECK(aio_return(&r) == 512 && (unsigned char)buf[0] == i);
	}
}

static void a_block_of_uninitialised_memory_works(void)
{
	int fd = filled("f", 65536), p[2];
	CHECK(pipe(p) == 0);
	char buf[16];
	for (int fill = 0; fill < 256; fill += 5) {
		struct aiocb r;
		memset(&r, fill, sizeof r);
		r.aio_fildes = fill % 2 ? fd : p[0];
		r.aio_buf = buf;
		r.aio_nbytes = 4;
		r.aio_offset = 0;
		r.aio_reqprio = 0;
		r.aio_sigevent.sigev_notify = SIGEV_NONE;
		CHECK(write(p[1], "abcd", 4) == 4);
		CHECK(aio_read(&r) == 0 && wait_for(&r) == 0 && aio_return(&r) == 4);
	}
}

static void aio_return_can_be_called_again(void)
{
	int fd = filled("f", 4096);
	char buf[512];
	struct aiocb r = request(fd, buf, sizeof buf, 0);
	CHECK(aio_read(&r) == 0 && wait_for(&r) == 0);
	for (int i = 0; i < 10; i++)
		CHECK(aio_return(&r) == 512 && aio_error(&r) == 0);
}

/* -1 with EINVAL: a result of EINVAL would be the error of a request. */
static void unknown(struct aiocb *cb)
{
	errno = 0;
	CHECK(aio_error(cb) == -1 && errno == EINVAL);
	errno = 0;
	CHECK(aio_return(cb) == -1 && errno == EINVAL);
}

static void a_block_that_was_never_submitted_is_invalid(void)
{
	char buf[512];
	struct aiocb r = request(0, buf, sizeof buf, 0);
	unknown(&r);
	int fd = filled("f", 4096);
	struct aiocb q = request(fd, buf, sizeof buf, 0);
	CHECK(aio_read(&q) == 0 && wait_for(&q) == 0);
	unknown(&r);
}

static void a_copy_has_the_status_of_its_original(void)
{
	char buf[512];
	int fd = filled("f", 4096), p[2];
	struct aiocb done = request(fd, buf, sizeof buf, 0);
	CHECK(aio_read(&done) == 0 && wait_for(&done) == 0);
	struct aiocb copy = done;
	CHECK(aio_error(&copy) == 0 && aio_return(&copy) == 512);
	done = request(fd, buf, sizeof buf, 0);
	done.aio_sigevent.sigev_notify = SIGEV_SIGNAL;
	done.aio_sigevent.sigev_signo = SIGCHLD;
	evict(fd);
	CHECK(aio_read(&done) == 0 && wait_for(&done) == 0);
	copy = done;
	CHECK(aio_error(&copy) == 0 && aio_return(&copy) == 512);
	done.aio_fildes = -1;
	if (aio_read(&done) == 0)
		CHECK(wait_for(&done) == EBADF);
	copy = done;
	CHECK(aio_error(&copy) == EBADF && aio_return(&copy) == -1);
	/* Also of a request in progress. The copy is no request, so aio_suspend does not wait for it. */
	CHECK(pipe(p) == 0);
	struct aiocb r = request(p[0], buf, 1, 0);
	CHECK(aio_read(&r) == 0);
	copy = r;
	const struct aiocb *list[1] = { &copy };
	CHECK(aio_error(&copy) == EINPROGRESS && aio_suspend(list, 1, NULL) == 0);
	errno = 0;
	CHECK(aio_cancel(p[0], &copy) == -1 && errno == EINVAL);
	CHECK(aio_error(&r) == EINPROGRESS);
	/* The copy can be submitted. */
	copy.aio_fildes = fd;
	copy.aio_nbytes = sizeof buf;
	CHECK(aio_read(&copy) == 0 && wait_for(&copy) == 0 && aio_return(&copy) == 512);
	CHECK(aio_error(&r) == EINPROGRESS);
	CHECK(write(p[1], "x", 1) == 1 && wait_for(&r) == 0);
}

static void a_sync_reaches_the_end(void)
{
	int fd = filled("f", 65536);
	struct aiocb s = request(fd, NULL, 0, 0);
	CHECK(aio_fsync(O_SYNC, &s) == 0 && wait_for(&s) == 0 && aio_return(&s) == 0);
	CHECK(aio_fsync(O_DSYNC, &s) == 0 && wait_for(&s) == 0 && aio_return(&s) == 0);
	/* All other fields are ignored. */
	s.aio_offset = -1;
	s.aio_reqprio = 1000;
	s.aio_nbytes = (size_t)-1;
	CHECK(aio_fsync(O_SYNC, &s) == 0 && wait_for(&s) == 0);
}

static void the_64_names_are_the_same_functions(void)
{
	int fd = filled("f", 65536);
	evict(fd);
	char buf[512];
	struct aiocb64 r;
	memset(&r, 0, sizeof r);
	r.aio_fildes = fd;
	r.aio_buf = buf;
	r.aio_nbytes = sizeof buf;
	r.aio_offset = 512;
	const struct aiocb64 *list[1] = { &r };
	CHECK(aio_read64(&r) == 0);
	while (aio_error64(&r) == EINPROGRESS)
		CHECK(aio_suspend64(list, 1, NULL) == 0);
	CHECK(aio_return64(&r) == 512 && buf[0] == 1);
	CHECK(aio_cancel64(fd, &r) == AIO_ALLDONE);
	CHECK(aio_write64(&r) == 0);
	while (aio_error64(&r) == EINPROGRESS)
		;
	CHECK(aio_fsync64(O_SYNC, &r) == 0);
	while (aio_error64(&r) == EINPROGRESS)
		;
	r.aio_lio_opcode = LIO_READ;
	struct aiocb64 *l[1] = { &r };
	CHECK(lio_listio64(LIO_WAIT, l, 1, NULL) == 0);
	struct aioinit hints = { .aio_threads = 4, .aio_num = 64 };
	aio_init(&hints);
}

static void requests_outlive_their_thread(void);

static struct aiocb of_thread;
static char of_thread_buf[4096];

static void *submits(void *fd)
{
	of_thread = request((int)(intptr_t)fd, of_thread_buf, 5, 0);
	CHECK(aio_read(&of_thread) == 0);
	return NULL;
}

static void requests_outlive_their_thread(void)
{
	int p[2];
	pthread_t t;
	CHECK(pipe(p) == 0);
	CHECK(pthread_create(&t, NULL, submits, (void *)(intptr_t)p[0]) == 0);
	CHECK(pthread_join(t, NULL) == 0);
	CHECK(aio_error(&of_thread) == EINPROGRESS);
	CHECK(write(p[1], "hello", 5) == 5);
	CHECK(wait_for(&of_thread) == 0 && aio_return(&of_thread) == 5);
	int fd = filled("f", 4 << 20);
	evict(fd);
	posix_fadvise(fd, 0, 0, POSIX_FADV_RANDOM);
	for (int i = 0; i < 50; i++) {
		CHECK(pthread_create(&t, NULL, submits, (void *)(intptr_t)fd) == 0);
		CHECK(pthread_join(t, NULL) == 0);
		CHECK(wait_for(&of_thread) == 0 && aio_return(&of_thread) == 5);
		evict(fd);
	}
}

TESTS(CASE(a_write_and_a_read_transfer_the_bytes), CASE(a_read_is_short_only_at_the_end),
      CASE(a_cached_read_is_done_within_the_call), CASE(a_reused_number_has_a_new_history),
      CASE(a_reused_number_is_tried_after_a_refusal),
      CASE(the_file_position_does_not_move), CASE(a_block_can_be_used_again),
      CASE(a_block_of_uninitialised_memory_works), CASE(aio_return_can_be_called_again),
      CASE(a_copy_has_the_status_of_its_original),
      CASE(a_block_that_was_never_submitted_is_invalid), CASE(a_sync_reaches_the_end),
      CASE(the_64_names_are_the_same_functions), CASE(requests_outlive_their_thread))
