/* aio_suspend: requests, timeouts, signals, cancellation of the thread. */
#include "check.h"

static char buf[4096];

static struct aiocb blocked(int *write_end)
{
	int p[2];
	CHECK(pipe(p) == 0);
	*write_end = p[1];
	return request(p[0], buf, 1, 0);
}

static void it_returns_at_once_for_a_request_that_is_done(void)
{
	int w;
	struct aiocb r = blocked(&w), done = request(filled("f", 4096), buf, 512, 0);
	CHECK(aio_read(&r) == 0 && aio_read(&done) == 0 && wait_for(&done) == 0);
	const struct aiocb *list[] = { NULL, &r, NULL, &done };
	CHECK(aio_suspend(list, 4, NULL) == 0);
}

static void it_times_out(void)
{
	int w;
	struct aiocb r = blocked(&w);
	CHECK(aio_read(&r) == 0);
	const struct aiocb *list[] = { &r };
	struct timespec none = { 0, 0 }, some = { 0, 50000000 };
	CHECK(aio_suspend(list, 1, &none) == -1 && errno == EAGAIN);
	double before = now();
	CHECK(aio_suspend(list, 1, &some) == -1 && errno == EAGAIN);
	CHECK(now() - before >= 0.05);
}

static void times_out_of_range(void)
{
	int w;
	struct aiocb r = blocked(&w);
	CHECK(aio_read(&r) == 0);
	const struct aiocb *list[] = { &r };
	struct timespec wrong[] = { { 0, -1 }, { 0, 1000000000 }, { -1, 0 }, { LONG_MIN, LONG_MIN },
				    { 0, LONG_MAX } };
	for (size_t i = 0; i < 5; i++)
		CHECK(aio_suspend(list, 1, &wrong[i]) == -1 && errno == EINVAL);
	struct timespec for_ever = { LONG_MAX, 999999999 };
	CHECK(write(w, "x", 1) == 1);
	CHECK(aio_suspend(list, 1, &for_ever) == 0);
}

static void *writes_later(void *fd)
{
	nap(50);
	CHECK(write((int)(intptr_t)fd, "x", 1) == 1);
	return NULL;
}

static void it_wakes_for_any_with_nulls_and_duplicates(void)
{
	int w1, w2;
	struct aiocb a = blocked(&w1), b = blocked(&w2);
	CHECK(aio_read(&a) == 0 && aio_read(&b) == 0);
	const struct aiocb *list[] = { &a, NULL, &a, &b, NULL, &b, &a };
	pthread_t t;
	CHECK(pthread_create(&t, NULL, writes_later, (void *)(intptr_t)w2) == 0);
	CHECK(aio_suspend(list, 7, NULL) == 0);
	CHECK(aio_error(&b) == 0 && aio_error(&a) == EINPROGRESS);
}

static void an_empty_list_returns(void)
{
	const struct aiocb *list[] = { NULL, NULL };
	struct timespec some = { 0, 1000000 };
	aio_suspend(list, 2, &some);
	aio_suspend(list, 0, &some);
	CHECK(aio_suspend(list, -1, &some) == -1 && errno == EINVAL);
}

static volatile sig_atomic_t handled;

static void handler(int signo)
{
	(void)signo;
	handled++;
}

static void interrupted(int flags, const struct timespec *timeout)
{
	struct sigaction action = { .sa_handler = handler, .sa_flags = flags };
	CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
	int w;
	struct aiocb r = blocked(&w);
	CHECK(aio_read(&r) == 0);
	const struct aiocb *list[] = { &r };
	pthread_t t;
	struct kicked me = { pthread_self(), SIGUSR1, 0 };
	CHECK(pthread_create(&t, NULL, kicks, &me) == 0);
	CHECK(aio_suspend(list, 1, timeout) == -1 && errno == EINTR);
	me.over = 1;
	CHECK(pthread_join(t, NULL) == 0);
	CHECK(handled && aio_error(&r) == EINPROGRESS);
	CHECK(write(w, "x", 1) == 1 && wait_for(&r) == 0);
}

static const struct timespec ten_seconds = { 10, 0 };

static void a_handler_interrupts_it(void) { interrupted(0, NULL); }
static void a_restarting_handler_interrupts_it(void) { interrupted(SA_RESTART, NULL); }
static void a_restarting_handler_interrupts_it_before_its_time(void)
{
	interrupted(SA_RESTART, &ten_seconds);
}

/* A program that handles each notification with SA_RESTART can wait for the last request. */
static void notified_by_restarting_handlers(const struct timespec *timeout)
{
	enum { N = 8 };
	struct sigaction action = { .sa_handler = handler, .sa_flags = SA_RESTART };
	CHECK(sigaction(SIGRTMIN, &action, NULL) == 0);
	struct aiocb r[N];
	int w[N];
	for (int i = 0; i < N; i++) {
		r[i] = blocked(&w[i]);
		r[i].aio_sigevent.sigev_notify = SIGEV_SIGNAL;
		r[i].aio_sigevent.sigev_signo = SIGRTMIN;
		CHECK(aio_read(&r[i]) == 0);
	}
	const struct aiocb *list[] = { &r[N - 1] };
	pid_t child = fork();
	if (child == 0) {
		/* Not a thread of this process, which might get the signals. */
		for (int i = 0; i < N; i++) {
			nap(20);
			CHECK(write(w[i], "x", 1) == 1);
		}
		_exit(0);
	}
	CHECK(aio_suspend(list, 1, timeout) == 0 && aio_error(&r[N - 1]) == 0);
	int status;
	CHECK(waitpid(child, &status, 0) == child && status == 0);
	for (int i = 0; i < N; i++)
		CHECK(wait_for(&r[i]) == 0);
	while (handled < N)
		sched_yield();
}

static void signals_of_requests_restart_it(void) { notified_by_restarting_handlers(NULL); }
static void signals_of_requests_restart_it_before_its_time(void)
{
	notified_by_restarting_handlers(&ten_seconds);
}

static volatile int cleaned;

static void cleans(void *unused)
{
	(void)unused;
	cleaned++;
}

static struct aiocb waited_for;

static void *waits(void *timeout)
{
	const struct aiocb *list[] = { &waited_for };
	pthread_cleanup_push(cleans, NULL);
	aio_suspend(list, 1, timeout);
	pthread_cleanup_pop(0);
	return NULL;
}

static void *waits_when_cancelled(void *unused)
{
	(void)unused;
	int before;
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
	nap(50);
	pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, &before);
	return waits(NULL);
}

static void it_is_a_cancellation_point(void)
{
	int w;
	waited_for = blocked(&w);
	CHECK(aio_read(&waited_for) == 0);
	for (int i = 1; i <= 20; i++) {
		pthread_t t;
		void *result;
		void *(*body)(void *) = i % 5 == 0 ? waits_when_cancelled : waits;
		void *time = i % 2 ? NULL : (void *)&ten_seconds;
		CHECK(pthread_create(&t, NULL, body, time) == 0);
		nap(i % 4 * 5);
		CHECK(pthread_cancel(t) == 0 && pthread_join(t, &result) == 0);
		CHECK(result == PTHREAD_CANCELED && cleaned == i);
	}
	/* The request continues, and another thread can wait for it. */
	pthread_t t;
	CHECK(pthread_create(&t, NULL, writes_later, (void *)(intptr_t)w) == 0);
	CHECK(wait_for(&waited_for) == 0 && aio_return(&waited_for) == 1);
}

static void *submits_when_cancelled(void *fd)
{
	struct aiocb r[3];
	static char in[3];
	int at = (int)(intptr_t)fd;
	pthread_cancel(pthread_self());
	/* No other function of <aio.h> is a cancellation point. */
	for (int i = 0; i < 3; i++)
		r[i] = request(at, &in[i], 1, 0);
	struct aiocb *list[1] = { &r[1] };
	CHECK(aio_read(&r[0]) == 0);
	CHECK(lio_listio(LIO_NOWAIT, list, 1, NULL) == 0);
	CHECK(aio_fsync(O_SYNC, &r[2]) == 0 || errno == EINVAL || errno == EBADF);
	while (aio_error(&r[0]) == EINPROGRESS || aio_error(&r[1]) == EINPROGRESS ||
	       aio_error(&r[2]) == EINPROGRESS)
		;
	CHECK(aio_return(&r[0]) == 1 && aio_return(&r[1]) == 1);
	CHECK(aio_cancel(at, NULL) == AIO_ALLDONE);
	cleaned = 77;
	pthread_testcancel();
	return NULL;
}

static void no_other_function_is_a_cancellation_point(void)
{
	int p[2];
	pthread_t t;
	void *result;
	CHECK(pipe(p) == 0 && write(p[1], "xx", 2) == 2);
	CHECK(pthread_create(&t, NULL, submits_when_cancelled, (void *)(intptr_t)p[0]) == 0);
	CHECK(pthread_join(t, &result) == 0 && result == PTHREAD_CANCELED && cleaned == 77);
}

static void waits_in_handler(int signo)
{
	(void)signo;
	const struct aiocb *list[] = { &waited_for };
	while (aio_error(&waited_for) == EINPROGRESS)
		aio_suspend(list, 1, NULL);
	CHECK(aio_return(&waited_for) == 1);
	handled++;
}

static void it_works_in_a_handler(void)
{
	struct sigaction action = { .sa_handler = waits_in_handler };
	CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
	int w;
	pthread_t t;
	waited_for = blocked(&w);
	CHECK(aio_read(&waited_for) == 0);
	CHECK(pthread_create(&t, NULL, writes_later, (void *)(intptr_t)w) == 0);
	CHECK(raise(SIGUSR1) == 0 && handled == 1);
}

static struct aiocb shared_request;

static void *waits_for_shared(void *unused)
{
	(void)unused;
	CHECK(wait_for(&shared_request) == 0);
	return NULL;
}

static void many_threads_wait_for_one(void)
{
	for (int round = 0; round < 20; round++) {
		int w;
		pthread_t t[16];
		shared_request = blocked(&w);
		CHECK(aio_read(&shared_request) == 0);
		for (int i = 0; i < 16; i++)
			CHECK(pthread_create(&t[i], NULL, waits_for_shared, NULL) == 0);
		nap(round % 3);
		CHECK(write(w, "x", 1) == 1);
		for (int i = 0; i < 16; i++)
			CHECK(pthread_join(t[i], NULL) == 0);
		close(w);
		close(shared_request.aio_fildes);
	}
}

/* The requests in flight that the handler waits for. */
enum { LAST = 8 };
static struct aiocb *volatile last[LAST];
static volatile int handled;

static void waits_for_the_last(int signo)
{
	(void)signo;
	int before = errno;
	const struct aiocb *list[LAST];
	for (int i = 0; i < LAST; i++)
		list[i] = last[i];
	aio_suspend(list, LAST, NULL);
	for (int i = 0; i < LAST; i++)
		while (list[i] && aio_error(list[i]) == EINPROGRESS)
			aio_suspend(&list[i], 1, NULL);
	handled++;
	errno = before;
}

static void *rains(void *thread)
{
	while (handled >= 0) {
		pthread_kill(*(pthread_t *)thread, SIGUSR1);
		usleep(50);
	}
	return NULL;
}

/* The handler may have interrupted aio_write, aio_cancel or malloc anywhere. */
static void it_works_in_a_handler_that_interrupts_any_function(void)
{
	enum { N = 64 };
	static struct aiocb cb[N];
	static char buf[N][512];
	int fd = filled("f", 1 << 20);
	struct sigaction action = { .sa_handler = waits_for_the_last, .sa_flags = SA_RESTART };
	CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
	pthread_t self = pthread_self(), t;
	CHECK(pthread_create(&t, NULL, rains, &self) == 0);
	double end = now() + 3;
	/* On a busy machine this takes longer. */
	for (unsigned i = 0; now() < end || handled < 1000; i++) {
		struct aiocb *next = &cb[i % N];
		last[i % LAST] = NULL;
		if (i >= N)
			CHECK(wait_for(next) == 0 || aio_error(next) == ECANCELED);
		*next = request(fd, buf[i % N], 512, i % 2048 * 512);
		if (i % 3) {
			next->aio_sigevent.sigev_notify = SIGEV_SIGNAL;
			next->aio_sigevent.sigev_signo = SIGURG;
		}
		CHECK(aio_write(next) == 0);
		last[i % LAST] = next;
		if (i % 16 == 0)
			CHECK(aio_cancel(fd, next) >= 0);
		free(malloc(2000 + i % 70000));
	}
	handled = INT_MIN;
	CHECK(pthread_join(t, NULL) == 0);
}

TESTS(CASE(it_returns_at_once_for_a_request_that_is_done), CASE(it_times_out),
      CASE(times_out_of_range), CASE(it_wakes_for_any_with_nulls_and_duplicates),
      CASE(an_empty_list_returns), CASE(a_handler_interrupts_it),
      CASE(a_restarting_handler_interrupts_it),
      CASE(a_restarting_handler_interrupts_it_before_its_time),
      CASE(signals_of_requests_restart_it), CASE(signals_of_requests_restart_it_before_its_time),
      CASE(it_is_a_cancellation_point), CASE(no_other_function_is_a_cancellation_point),
      CASE(it_works_in_a_handler), CASE(many_threads_wait_for_one),
      CASE(it_works_in_a_handler_that_interrupts_any_function))
