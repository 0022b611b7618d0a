/* Programs for which POSIX leaves the behaviour undefined. They must not hang. */
#include "check.h"
#include <sched.h>
#include <setjmp.h>
#include <stdatomic.h>

static char buf[65536];

/* Runs the body in a child, which is killed if it hangs. Returns 0, or the signal that ended it. */
static int ends(void (*body)(void))
{
	pid_t child = fork();
	if (child == 0) {
		alarm(HANGS);
		body();
		_exit(0);
	}
	int status;
	CHECK(child > 0 && waitpid(child, &status, 0) == child);
	CHECK(WIFSIGNALED(status) || WEXITSTATUS(status) == 0);
	return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

static int fd;
static struct aiocb *wild;

static void reads(void) { aio_read(wild); }
static void writes(void) { aio_write(wild); }
static void lists(void) { lio_listio(LIO_WAIT, &wild, 1, NULL); }

static void a_block_that_is_no_memory_is_a_segmentation_fault(void)
{
	void (*calls[])(void) = { reads, writes, lists };
	fd = filled("f", 4096);
	wild = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	for (size_t i = 0; i < sizeof calls / sizeof *calls; i++)
		CHECK(ends(calls[i]) == SIGSEGV);
}

static void uses_a_constant_block(void)
{
	*wild = request(fd, buf, 512, 0);
	CHECK(mprotect(wild, 4096, PROT_READ) == 0);
	aio_read(wild);
}

static void a_block_that_is_read_only_is_a_segmentation_fault(void)
{
	fd = filled("f", 4096);
	wild = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(ends(uses_a_constant_block) == SIGSEGV);
}

static void unmaps_a_block(void)
{
	int p[2];
	CHECK(pipe(p) == 0);
	*wild = request(p[0], buf, 1, 0);
	CHECK(aio_read(wild) == 0);
	nap(20);
	CHECK(munmap(wild, 4096) == 0 && write(p[1], "x", 1) == 1);
	nap(10000);
}

/* The fault is in the library's thread, and ends the program. */
static void a_block_that_is_unmapped_in_flight_is_a_segmentation_fault(void)
{
	wild = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(ends(unmaps_a_block) == SIGSEGV);
}

static sigjmp_buf back;

static void jumps(int signo)
{
	(void)signo;
	siglongjmp(back, 1);
}

/* A handler may leave the function by siglongjmp(3): blocks are read without a lock. */
static void a_segmentation_fault_can_be_survived(void)
{
	fd = filled("f", 65536);
	wild = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct sigaction action = { .sa_handler = jumps };
	CHECK(sigaction(SIGSEGV, &action, NULL) == 0);
	for (volatile int i = 0; i < 10; i++)
		if (sigsetjmp(back, 1) == 0) {
			aio_read(wild);
			CHECK(0);
		}
	evict(fd);
	struct aiocb r = request(fd, buf, 4096, 0), w = request(fd, buf, 512, 0);
	CHECK(aio_read(&r) == 0 && wait_for(&r) == 0);
	CHECK(aio_write(&w) == 0 && wait_for(&w) == 0);
}

static void memory_that_is_unmapped_in_flight(void)
{
	int p[2];
	CHECK(pipe(p) == 0);
	char *memory = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct aiocb r = request(p[0], memory, 4096, 0);
	CHECK(aio_read(&r) == 0);
	nap(20);
	CHECK(munmap(memory, 4096) == 0 && write(p[1], "x", 1) == 1);
	CHECK(wait_for(&r) == EFAULT && aio_return(&r) == -1);
}

static void memory_that_is_read_only(void)
{
	fd = filled("f", 65536);
	char *memory = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	for (int cold = 0; cold < 2; cold++) {
		if (cold)
			evict(fd);
		struct aiocb r = request(fd, memory, 4096, 0);
		CHECK(aio_read(&r) == 0 && wait_for(&r) == EFAULT);
	}
	struct aiocb w = request(fd, memory, 4096, 0);
	CHECK(aio_write(&w) == 0 && wait_for(&w) == 0 && aio_return(&w) == 4096);
}

/* The result is the data that the file has. */
static void reads_far_beyond_the_end(void)
{
	size_t sizes[] = { 1u << 30, 0x7ffff000, 0x7fffffff, 0xffffffff, 1ull << 33 };
	size_t most = 1ull << 34;
	char *memory = mmap(NULL, most, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	CHECK(memory != MAP_FAILED);
	fd = filled("f", 65536);
	int p[2];
	CHECK(pipe(p) == 0);
	for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
		for (int cold = 0; cold < 2; cold++) {
			if (cold)
				evict(fd);
			struct aiocb r = request(fd, memory, sizes[i], 512);
			CHECK(aio_read(&r) == 0 && wait_for(&r) == 0);
			CHECK(aio_return(&r) == 65024 && memory[0] == 1);
			r = request(p[0], memory, sizes[i], 0);
			CHECK(aio_read(&r) == 0 && write(p[1], "abc", 3) == 3);
			CHECK(wait_for(&r) == 0 && aio_return(&r) == 3);
		}
}

static void lists_of_nulls(void)
{
	static struct aiocb *none[1000];
	sigset_t set;
	sigemptyset(&set);
	sigaddset(&set, SIGRTMIN);
	CHECK(pthread_sigmask(SIG_BLOCK, &set, NULL) == 0);
	struct sigevent event;
	memset(&event, 0, sizeof event);
	event.sigev_notify = SIGEV_SIGNAL;
	event.sigev_signo = SIGRTMIN;
	CHECK(lio_listio(LIO_WAIT, none, 1000, NULL) == 0);
	CHECK(lio_listio(LIO_NOWAIT, none, 1000, NULL) == 0);
	CHECK(lio_listio(LIO_NOWAIT, none, 1000, &event) == 0);
	struct timespec some = { 10, 0 };
	CHECK(sigtimedwait(&set, NULL, &some) == SIGRTMIN);
	fd = filled("f", 4096);
	struct aiocb r = request(fd, buf, 512, 0);
	r.aio_lio_opcode = LIO_READ;
	none[777] = &r;
	CHECK(lio_listio(LIO_WAIT, none, 1000, NULL) == 0 && aio_error(&r) == 0);
}

/* Random bytes in the fields that the library uses. */
static void blocks_of_random_bytes(void)
{
	fd = filled("f", 4096);
	srand(77);
	for (int i = 0; i < 2000; i++) {
		struct aiocb r;
		for (size_t k = 0; k < sizeof r; k++)
			((unsigned char *)&r)[k] = rand();
		aio_error(&r);
		aio_return(&r);
		r.aio_fildes = fd;
		aio_cancel(fd, &r);
		r.aio_buf = buf;
		r.aio_nbytes = 512;
		r.aio_offset = 0;
		r.aio_reqprio = 0;
		r.aio_sigevent.sigev_notify = SIGEV_NONE;
		CHECK((i % 2 ? aio_read(&r) : aio_write(&r)) == 0);
		CHECK(wait_for(&r) == 0 && aio_return(&r) == 512);
	}
}

static struct aiocb waiting;
static volatile sig_atomic_t cancels;

static void cancels_in_handler(int signo)
{
	(void)signo;
	int before = errno, answer = aio_cancel(waiting.aio_fildes, &waiting);
	CHECK(answer >= 0 && answer <= AIO_ALLDONE);
	if (answer == AIO_CANCELED)
		CHECK(aio_error(&waiting) == ECANCELED);
	cancels++;
	errno = before;
}

/* The handler may interrupt any function. */
static void cancelling_in_a_handler(void)
{
	int p[2];
	struct sigaction action = { .sa_handler = cancels_in_handler };
	struct kicked me = { .thread = pthread_self(), .signo = SIGUSR1 };
	pthread_t t;
	CHECK(pipe(p) == 0);
	waiting = request(p[0], buf, 1, 0);
	fd = filled("f", 65536);
	CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
	CHECK(pthread_create(&t, NULL, kicks, &me) == 0);
	double end = now() + 2;
	while (now() < end || cancels < 5) {
		struct aiocb w = request(fd, buf, 4096, 0);
		if (aio_error(&waiting) != EINPROGRESS)
			CHECK(aio_read(&waiting) == 0);
		CHECK(aio_write(&w) == 0 && wait_for(&w) == 0);
		free(malloc(777));
	}
	me.over = 1;
	CHECK(pthread_join(t, NULL) == 0);
}

static struct aiocb again[2];
static volatile sig_atomic_t times[2];
enum { TIMES = 300 };

static void once_more(int which)
{
	CHECK(aio_error(&again[which]) == 0 && aio_return(&again[which]) == 512);
	if (++times[which] < TIMES) {
		again[which].aio_offset = times[which] % 8 * 512;
		CHECK((times[which] % 2 ? aio_read : aio_write)(&again[which]) == 0);
	}
}

static void on_signal(int signo, siginfo_t *info, void *context)
{
	(void)signo, (void)context;
	int before = errno;
	once_more(info->si_value.sival_int);
	errno = before;
}

static void on_thread(union sigval value) { once_more(value.sival_int); }

static void resubmitting_in_a_notification(void)
{
	fd = filled("f", 65536);
	struct sigaction action = { .sa_sigaction = on_signal, .sa_flags = SA_SIGINFO };
	CHECK(sigaction(SIGRTMIN, &action, NULL) == 0);
	for (int i = 0; i < 2; i++) {
		again[i] = request(fd, buf, 512, 0);
		again[i].aio_sigevent.sigev_notify = i ? SIGEV_THREAD : SIGEV_SIGNAL;
		again[i].aio_sigevent.sigev_value.sival_int = i;
	}
	again[0].aio_sigevent.sigev_signo = SIGRTMIN;
	again[1].aio_sigevent.sigev_notify_function = on_thread;
	CHECK(aio_write(&again[0]) == 0 && aio_write(&again[1]) == 0);
	while (times[0] < TIMES || times[1] < TIMES)
		nap(1);
}

static void uses(void)
{
	struct aiocb w = request(fd, buf, 512, 0), r = request(fd, buf, 4096, 8192);
	CHECK(aio_write(&w) == 0 && wait_for(&w) == 0 && aio_return(&w) == 512);
	evict(fd);
	CHECK(aio_read(&r) == 0 && wait_for(&r) == 0 && aio_return(&r) == 4096);
}

static atomic_int forks;

static void forks_when_notified(union sigval value)
{
	(void)value;
	CHECK(ends(uses) == 0);
	forks++;
}

/* In a notification thread and in the main thread, with reads and writes in flight. */
static void forking_with_requests_in_flight(void)
{
	enum { N = 20 };
	static struct aiocb r[N], w[N];
	int p[2];
	CHECK(pipe(p) == 0);
	fd = filled("f", 65536);
	for (int i = 0; i < N; i++) {
		r[i] = request(p[0], &buf[i], 1, 0);
		CHECK(aio_read(&r[i]) == 0);
		w[i] = request(fd, buf, 4096, (off_t)i * 512);
		w[i].aio_sigevent.sigev_notify = SIGEV_THREAD;
		w[i].aio_sigevent.sigev_notify_function = forks_when_notified;
		CHECK(aio_write(&w[i]) == 0);
		if (i % 4 == 0)
			CHECK(ends(uses) == 0);
	}
	while (forks < N)
		nap(1);
	CHECK(write(p[1], buf, N) == N);
	for (int i = 0; i < N; i++)
		CHECK(wait_for(&r[i]) == 0 && wait_for(&w[i]) == 0);
}

static void calls_execve(void)
{
	int p[2];
	CHECK(pipe(p) == 0);
	struct aiocb r = request(p[0], buf, 1, 0), w = request(fd, buf, 4096, 0);
	CHECK(aio_read(&r) == 0 && aio_write(&w) == 0);
	execl("/proc/self/exe", "program", "lists_of_nulls", (char *)NULL);
	CHECK(0);
}

static void execve_with_requests_in_flight(void)
{
	fd = filled("g", 65536);
	for (int i = 0; i < 5; i++)
		CHECK(ends(calls_execve) == 0);
}

static volatile int stop;

static void *opens_and_closes(void *unused)
{
	(void)unused;
	while (!stop) {
		int other = open("f", O_RDWR), p[2];
		CHECK(other >= 0 && pipe(p) == 0);
		dup2(p[1], other);
		close(p[0]), close(p[1]), close(other);
	}
	return NULL;
}

/* The number may belong to any file at that moment. Each call ends. */
static void descriptors_that_other_threads_close(void)
{
	pthread_t t[2];
	int own = filled("f", 65536), next = dup(own);
	signal(SIGPIPE, SIG_DFL);
	close(next);
	for (int i = 0; i < 2; i++)
		CHECK(pthread_create(&t[i], NULL, opens_and_closes, NULL) == 0);
	double end = now() + 2;
	for (int i = 0; now() < end; i++) {
		struct aiocb cb = request(next + i % 4, buf, 512, 0);
		CHECK((i % 2 ? aio_read(&cb) : aio_write(&cb)) == 0 || errno == EAGAIN);
		const struct aiocb *list[1] = { &cb };
		struct timespec some = { 0, 1000000 };
		while (aio_error(&cb) == EINPROGRESS)
			if (aio_suspend(list, 1, &some) != 0)
				aio_cancel(next + i % 4, &cb);
	}
	stop = 1;
	for (int i = 0; i < 2; i++)
		CHECK(pthread_join(t[i], NULL) == 0);
	struct aiocb r = request(own, buf, 512, 0);
	CHECK(aio_read(&r) == 0 && wait_for(&r) == 0);
}

TESTS(CASE(a_block_that_is_no_memory_is_a_segmentation_fault),
      CASE(a_block_that_is_read_only_is_a_segmentation_fault),
      CASE(a_block_that_is_unmapped_in_flight_is_a_segmentation_fault),
      CASE(a_segmentation_fault_can_be_survived), CASE(memory_that_is_unmapped_in_flight),
      CASE(memory_that_is_read_only), CASE(reads_far_beyond_the_end), CASE(lists_of_nulls),
      CASE(blocks_of_random_bytes), CASE(cancelling_in_a_handler),
      CASE(resubmitting_in_a_notification), CASE(forking_with_requests_in_flight),
      CASE(execve_with_requests_in_flight), CASE(descriptors_that_other_threads_close))
