/* Eight threads that read, write, cancel, wait and fork, and get signals all the time. */
#include "check.h"
#include <sched.h>
#include <sys/prctl.h>

enum { THREADS = 8, BLOCK = 4096, BLOCKS = 2048, PENDING = 16 };

/* A request, and the number of its notifications. The block is reused when all have come. */
struct slot {
	struct aiocb cb;
	int expected, notified;
	char buf[BLOCK];
};

static volatile int stop;
static int data;
static int rain;

static void count_notification(struct slot *slot)
{
	CHECK(aio_error(&slot->cb) != EINPROGRESS);
	__atomic_add_fetch(&slot->notified, 1, __ATOMIC_SEQ_CST);
}

static void on_signal(int signo, siginfo_t *info, void *context)
{
	(void)signo, (void)context;
	int before = errno;
	if (info->si_value.sival_ptr)
		count_notification(info->si_value.sival_ptr);
	else
		__atomic_add_fetch(&rain, 1, __ATOMIC_SEQ_CST);
	errno = before;
}

static void on_thread(union sigval value) { count_notification(value.sival_ptr); }

static uint32_t next(uint32_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 17;
	*state ^= *state << 5;
	return *state;
}

/* Each thread has its own part of the file. Each block of it has the block's number as its content. */
static void *works(void *arg)
{
	int me = (int)(intptr_t)arg;
	uint32_t state = 77777u * (me + 1);
	static struct slot slots[THREADS][PENDING];
	char byte;
	int p[2];
	CHECK(pipe(p) == 0);
	while (!stop) {
		struct aiocb *list[PENDING];
		int cancelled = 0;
		for (int i = 0; i < PENDING; i++) {
			int block = me * (BLOCKS / THREADS) + next(&state) % (BLOCKS / THREADS);
			struct slot *slot = &slots[me][i];
			struct aiocb *cb = list[i] = &slot->cb;
			*cb = request(data, slot->buf, BLOCK, (off_t)block * BLOCK);
			uint32_t kind = next(&state) % 10;
			cb->aio_lio_opcode = kind < 7 ? LIO_READ : LIO_WRITE;
			memset(slot->buf, kind < 7 ? 0 : block % 251, BLOCK);
			slot->notified = slot->expected = 0;
			if (next(&state) % 4 == 0) {
				cb->aio_sigevent.sigev_notify = SIGEV_SIGNAL;
				cb->aio_sigevent.sigev_signo = SIGRTMIN;
				cb->aio_sigevent.sigev_value.sival_ptr = slot;
				slot->expected = 1;
			} else if (next(&state) % 16 == 0) {
				cb->aio_sigevent.sigev_notify = SIGEV_THREAD;
				cb->aio_sigevent.sigev_notify_function = on_thread;
				cb->aio_sigevent.sigev_value.sival_ptr = slot;
				slot->expected = 1;
			}
		}
		uint32_t mode = next(&state) % 8;
		if (mode < 2) {
			int r = lio_listio(mode ? LIO_WAIT : LIO_NOWAIT, list, PENDING, NULL);
			CHECK(r == 0 || errno == EINTR);
		} else {
			for (int i = 0; i < PENDING; i++)
				CHECK((list[i]->aio_lio_opcode == LIO_READ ? aio_read(list[i]) :
									     aio_write(list[i])) == 0);
		}
		if (mode == 3) {
			cancelled = 1;
			CHECK(aio_cancel(data, list[next(&state) % PENDING]) >= 0);
		}
		if (mode == 4) {
			struct aiocb r = request(p[0], &byte, 1, 0);
			CHECK(aio_read(&r) == 0);
			if (next(&state) % 2) {
				CHECK(aio_cancel(p[0], &r) == AIO_CANCELED);
				CHECK(aio_error(&r) == ECANCELED);
			} else {
				CHECK(write(p[1], "x", 1) == 1 && wait_for(&r) == 0);
			}
		}
		if (mode == 5) {
			struct aiocb s = request(data, NULL, 0, 0);
			CHECK(aio_fsync(O_DSYNC, &s) == 0 && wait_for(&s) == 0);
		}
		if (mode == 6)
			posix_fadvise(data, 0, 0, POSIX_FADV_DONTNEED);
		if (mode == 7 && next(&state) % 8 == 0) {
			pid_t child = fork();
			if (child == 0) {
				struct aiocb r = request(data, slots[me][0].buf, BLOCK, 0);
				CHECK(aio_read(&r) == 0 && wait_for(&r) == 0);
				_exit(0);
			}
			int status;
			while (waitpid(child, &status, 0) != child)
				CHECK(errno == EINTR);
			CHECK(status == 0);
		}
		for (int i = 0; i < PENDING; i++) {
			int e = wait_for(list[i]);
			CHECK(e == 0 || (cancelled && e == ECANCELED));
			if (e)
				continue;
			CHECK(aio_return(list[i]) == BLOCK);
			int block = (int)(list[i]->aio_offset / BLOCK);
			CHECK((unsigned char)slots[me][i].buf[BLOCK / 2] == block % 251);
		}
		double end = now() + HANGS;
		for (int i = 0; i < PENDING; i++)
			while (__atomic_load_n(&slots[me][i].notified, __ATOMIC_SEQ_CST) <
			       slots[me][i].expected) {
				CHECK(now() < end);
				sched_yield();
			}
		for (int i = 0; i < PENDING; i++)
			CHECK(slots[me][i].notified == slots[me][i].expected);
	}
	return NULL;
}

static void all_at_once(void)
{
	static char block[BLOCK];
	data = open("data", O_RDWR | O_CREAT | O_TRUNC, 0600);
	for (int i = 0; i < BLOCKS; i++) {
		memset(block, i % 251, BLOCK);
		CHECK(write(data, block, BLOCK) == BLOCK);
	}
	struct sigaction action = { .sa_sigaction = on_signal, .sa_flags = SA_SIGINFO };
	CHECK(sigaction(SIGRTMIN, &action, NULL) == 0);
	pthread_t t[THREADS];
	for (int i = 0; i < THREADS; i++)
		CHECK(pthread_create(&t[i], NULL, works, (void *)(intptr_t)i) == 0);
	double end = now() + atof(getenv("SECONDS_OF_STRESS"));
	for (uint32_t i = 0; now() < end; i++) {
		union sigval none = { .sival_ptr = NULL };
		pthread_sigqueue(t[i % THREADS], SIGRTMIN, none);
		usleep(200);
	}
	stop = 1;
	for (int i = 0; i < THREADS; i++)
		CHECK(pthread_join(t[i], NULL) == 0);
	CHECK(rain > 100);
}

/* Delays the submitting thread, on the same processor, at any moment and for longer than the driver takes
   to fall asleep on another one. */
static void *holds_up(void *unused)
{
	(void)unused;
	prctl(PR_SET_TIMERSLACK, 1);
	for (unsigned i = 0; !stop; i++) {
		struct timespec pause = { 0, 1000 * (5 + i % 40) };
		nanosleep(&pause, NULL);
		for (double end = now() + 100e-6; now() < end;)
			;
	}
	return NULL;
}

/* One request at a time, on a file that no other request uses. So each request wakes the driver by itself,
   often at the moment when the driver falls asleep. If a wake-up is lost, the test hangs: there is no other
   request that would wake the driver. */
static void no_wake_up_is_lost(void)
{
	pthread_t t;
	cpu_set_t here;
	char byte = 'x', name[] = "ask-XXXXXX";
	struct aiocb first = request(open("/dev/null", O_WRONLY), &byte, 1, 0);
	/* The library starts its threads here, so that they may run on any processor. */
	CHECK(aio_write(&first) == 0 && wait_for(&first) == 0);
	CPU_ZERO(&here);
	CPU_SET(sched_getcpu(), &here);
	CHECK(pthread_setaffinity_np(pthread_self(), sizeof here, &here) == 0);
	CHECK(pthread_create(&t, NULL, holds_up, NULL) == 0);
	double end = now() + atof(getenv("SECONDS_OF_STRESS"));
	int fd = mkstemp(name), p[2];
	CHECK(fd >= 0 && unlink(name) == 0 && pipe(p) == 0);
	for (unsigned i = 0; now() < end; i++) {
		struct aiocb w = request(i % 3 ? fd : p[1], &byte, 1, 0);
		CHECK(aio_write(&w) == 0);
		if (i % 5 == 0)
			CHECK(aio_cancel(w.aio_fildes, &w) >= 0);
		int e = wait_for(&w);
		CHECK(e == 0 || (i % 5 == 0 && e == ECANCELED));
		if (w.aio_fildes == p[1] && e == 0)
			CHECK(read(p[0], &byte, 1) == 1);
		if (i % 7 == 0)
			usleep(i % 100);
	}
	stop = 1;
	CHECK(pthread_join(t, NULL) == 0);
}

TESTS(CASE(all_at_once), CASE(no_wake_up_is_lost))
